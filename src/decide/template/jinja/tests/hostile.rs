//! Templates that exceed the limits.

use go_templates::Limit;

use super::render;

fn on_small_stack<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run);
    thread.unwrap().join().unwrap()
}

#[test]
fn hostile_templates_end_with_a_limit() {
    let set =
        |expression: &str, count: usize| format!("{{% set x = {expression} %}}").repeat(count);
    let looks = |expression: &str| {
        format!(
            "{{% set b = repeat(6000000, 'b') %}}{{% for i in range(9000) %}}{{% set x = {expression} %}}{{% endfor %}}"
        )
    };
    let cases = [
        ("{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}".to_owned(), Limit::Steps),
        ("{% for i in range(10000) %}0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef{% endfor %}".to_owned(), Limit::Output),
        (format!("{{% set x = uid %}}{}", set("x ~ x", 40)), Limit::Memory),
        (format!("{{% set x = uid %}}{}", set("x + x", 40)), Limit::Memory),
        (format!("{{% set x = uid %}}{}", set("x * 10", 40)), Limit::Memory),
        (format!("{{% set x = [uid] %}}{}", set("x + x", 40)), Limit::Steps),
        (format!("{{% set x = [uid] %}}{}", set("x * 9", 40)), Limit::Memory),
        (format!("{{% set x = [uid] %}}{}", set("[x, x]", 40)), Limit::Steps),
        (format!("{{% set x = [uid] %}}{}", set("(x, x)", 40)), Limit::Steps),
        (format!("{{% set x = [uid] %}}{}", set("{'a': x, 'b': x}", 40)), Limit::Steps),
        (format!("{{% set x = [uid] %}}{}", set("[x]", 400)), Limit::Depth),
        (format!("{{% set x = [uid] %}}{}", set("list(x)", 400)), Limit::Depth),
        (format!("{{% set x = uid %}}{}", set("replace('', x, x)", 40)), Limit::Memory),
        (format!("{{% set x = 'ab' %}}{}", "{% set x %}{{ x }}{{ x }}{% endset %}".repeat(40)), Limit::Output),
        ("{% macro f(x, n) %}{{ f(x ~ x, n + 1) }}{% endmacro %}{{ f(uid, 0) }}".to_owned(), Limit::Depth),
        ("{{ repeat(1000000000, 'x') }}".to_owned(), Limit::Memory),
        ("{{ until(1000000000) }}".to_owned(), Limit::Steps),
        ("{% for i in range(9000) %}{% set y = range(9000) | sort %}{% endfor %}".to_owned(), Limit::Steps),
        (looks("b is lower"), Limit::Steps),
        (looks("'a' in b"), Limit::Steps),
        (looks("b == b"), Limit::Steps),
        (looks("0 < 1 == b"), Limit::Steps),
        (looks("b | length"), Limit::Steps),
        (looks("[b, b] | unique"), Limit::Steps),
        (looks("[b, b] | select('in', b) | list"), Limit::Steps),
        (looks("{b: 1}"), Limit::Steps),
        (looks("{'a': 1}[b] is defined"), Limit::Steps),
        (looks("{'a': 1}[b if i else 'a']"), Limit::Steps),
        (looks("loop.changed(b)"), Limit::Steps),
        ("{% set b = repeat(6000000, 'b') %}{% for i in range(9000) %}{% for c in b %}{% break %}{% endfor %}{% endfor %}".to_owned(), Limit::Steps),
        ("{% set b = repeat(6000000, 'b') %}{{ ([b] * 9000) | sort | length }}".to_owned(), Limit::Steps),
        ("{% set b = repeat(6000000, 'b') %}{{ ([b] * 9000) | select('lower') | list | length }}".to_owned(), Limit::Steps),
        ("{% set b = until(10000) %}{% for i in range(9000) %}{% set x = b == b %}{% set y = -5 in b %}{% endfor %}".to_owned(), Limit::Steps),
        ("{% for i in range(9000) %}{% set y = uid[0:4] ~ uid %}{{ y }}{% endfor %}{% for i in range(9000) %}{{ uid }}{% endfor %}".to_owned(), Limit::Steps),
    ];
    for (text, limit) in cases {
        let shown: String = text.chars().take(100).collect();
        let found = on_small_stack(move || render(&text).map(|_| ()));
        let found = found.map_err(|error| (error.limit, error.message));
        assert!(
            matches!(&found, Err((Some(found), _)) if *found == limit),
            "{shown}: want {limit:?}, got {found:?}"
        );
    }
}

#[test]
fn nothing_exhausts_the_stack() {
    let long = 20_000;
    let chains = [
        ("{{ x", " ~ x"),
        ("{{ x", ".a"),
        ("{{ x", "|upper"),
        ("{{ x", "()"),
        ("{{ x", "[0]"),
        ("{{ x", " ** x"),
        ("{{ x", " if x else x"),
        ("{{ x", " and x"),
        ("{{ x", " is defined"),
        ("{{ ", "not "),
        ("{{ ", "-"),
        ("{{ ", "("),
        ("{{ ", "["),
        ("{{ ", "{1:"),
        ("", "{% if uid %}"),
        ("", "{% for x in [1] %}"),
        ("", "{% macro m() %}"),
        (
            "{% if missing is defined %}",
            "{% elif missing is defined %}",
        ),
        ("", "{% set x = [x] %}"),
        (
            "",
            "{% if missing is defined %}{% elif missing is defined %}{% elif missing is defined %}",
        ),
        ("", "{% filter upper %}"),
        ("", "{% set x %}"),
        ("", "{% call m() %}"),
    ];
    for (start, repeated) in chains {
        for count in [40, 99, 140, long] {
            let text = format!("{start}{}", repeated.repeat(count));
            let closed = [format!("{text} }}}}"), format!("{text}{{% endif %}}"), text];
            // Either a result or an error is fine: the process must survive.
            on_small_stack(move || closed.iter().for_each(|text| drop(render(text))));
        }
    }
    let nested = "{% if uid %}".repeat(100)
        + &"{% elif uid %}".repeat(99)
        + "{{ uid"
        + &" ~ uid".repeat(120)
        + " }}"
        + &"{% endif %}".repeat(100);
    on_small_stack(move || drop(render(&nested)));
    let recursive = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}".to_owned();
    let found = on_small_stack(move || render(&recursive).unwrap_err().limit);
    assert_eq!(found, Some(Limit::Depth));
}
