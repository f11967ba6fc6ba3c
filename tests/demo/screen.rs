//! What the demo prints: headlines, commands with their output, and one line of live counts. Decides nothing.

use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use crate::stage::Tally;

const INDENT: &str = "   ";
/// Where nobody watches a line change, it is printed this seldom.
const LINE_EVERY: Duration = Duration::from_secs(10);

pub struct Screen {
    terminal: bool,
    colours: bool,
    acts: usize,
    started: Instant,
    /// The live line: when it was first drawn, and when last printed.
    live: Option<(Instant, Instant)>,
}

impl Screen {
    pub fn new() -> Screen {
        let terminal = stdout().is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some();
        Screen {
            terminal,
            colours: terminal && !plain,
            acts: 0,
            started: Instant::now(),
            live: None,
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn headline(&mut self, title: &str) {
        self.acts += 1;
        let at = clock(self.elapsed());
        println!("\n{}  {at}", self.bold(&format!("{}. {title}", self.acts)));
    }

    pub fn say(&self, text: &str) {
        for line in text.lines() {
            println!("{INDENT}{line}");
        }
    }

    pub fn command(&self, prompt: &str, line: &str) {
        println!("{INDENT}{}", self.bold(&format!("{prompt} {line}")));
    }

    /// What happened as it should.
    pub fn good(&self, text: &str) {
        let mark = self.paint("32", "✓");
        println!("{INDENT}{mark} {text}");
    }

    pub fn bad(&self, text: &str) {
        println!(
            "\n{} {text}",
            self.paint("31", "✗ It did not happen as it should:")
        );
    }

    /// The counts, drawn over the last ones on a terminal. One cell of the bar stands for one tenant.
    pub fn live(&mut self, tally: Tally, last: bool) {
        let now = Instant::now();
        let (since, printed) = self.live.unwrap_or((now, now - LINE_EVERY));
        let seconds = (now - since).as_secs_f64();
        let bar: String = [
            ("32", '█', tally.new),
            ("33", '▒', tally.not_ready),
            ("2", '·', tally.held),
        ]
        .into_iter()
        .map(|(colour, cell, count)| self.paint(colour, &cell.to_string().repeat(count)))
        .collect();
        let counts = format!(
            "new {:>2} | not ready {:>2} | held {:>2}",
            tally.new, tally.not_ready, tally.held
        );
        let line = format!("{INDENT}{bar}  {counts}  {seconds:>4.1} s");
        if self.terminal {
            print!("\r{line}\x1b[K{}", if last { "\n" } else { "" });
            let _ = stdout().flush();
        } else if last || now - printed >= LINE_EVERY {
            println!("{line}");
            self.live = Some((since, now));
            return;
        }
        self.live = Some((since, printed));
    }

    /// Leaves the live line as it stands; the next one begins anew, and so does its clock.
    pub fn end_live(&mut self, tally: Tally) {
        self.live(tally, true);
        self.live = None;
    }

    fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colours {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Minutes and seconds.
pub fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}
