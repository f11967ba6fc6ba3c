//! Renders a template with variables: `cargo run --example render -- 'Hello {{ .name | shout }}' name=world`. The time and the
//! seed are constants here; a real program passes its own.

use std::error::Error;
use std::sync::Arc;
use std::{env, process};

use go_templates::{
    Budget, Context, Facts, Function, Library, Limits, Outcome, Param, Place, Seed, Signature,
    Template, Value, arguments,
};

/// A function of the program's own.
const SHOUT: Function = Function::new("shout", Signature::exactly(&[Param::Str]), shout);

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let text = arguments.next().ok_or("give a template")?;
    let pairs: Vec<String> = arguments.collect();
    let pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
    let variables = Value::dict(pairs.map(|(name, value)| (name, Value::str(value))));

    let library = Library::sprig()
        .with([SHOUT])
        .refusing("repeat", "this program wants short texts");
    let template = Template::parse(&library, "template", &text)?;

    let budget = Budget::new(Limits {
        steps: 10_000,
        ..Limits::default()
    });
    let facts = Facts {
        now: Ok("2026-01-02T03:04:05Z".parse()?),
        seed: Ok(Seed::new([0; 32], ["example"])),
    };
    let place = Place {
        path: "template".to_owned(),
        text: Arc::from(text),
    };
    let mut context = Context::with_facts(budget, Arc::new(facts), place);
    let output = template.render(&variables, &mut context)?;
    println!("{}", output.into_text());
    Ok(())
}

fn shout(context: &mut Context, args: &[Value]) -> Outcome {
    let mut text = arguments::text(args, 0)?.to_ascii_uppercase();
    text.push(b'!');
    context.string(text)
}
