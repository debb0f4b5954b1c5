use proptest::prelude::*;

use super::*;

fn text(source: &str) -> String {
    prepare(source).unwrap().text
}

#[test]
fn what_the_engine_knows_is_left_alone() {
    for source in [
        "",
        "{",
        "a { b } {# {% generation %} ' #} c",
        "{{ 'a % b ~ c' }}{{- x.y[0](1, *a, **b) | f(g=1) -}}",
        "{% raw %}{% generation %}{{ a % b }}{% endraw -%} x",
        "{% macro f(a, b=1) %}{% endmacro %}{% else %}",
        "{{ 'a\\n\\'\\x41\\u00e9\\q\\\\U' }}",
        "{{ {'a': {'b': 1}} }}",
        "{{ 'unclosed",
        "{% set x = 2 * -3 ** 4 // 5 / 6 - 1e-5 + 0x1e %}",
    ] {
        assert_eq!(text(source), source);
    }
}

#[test]
fn a_generation_block_is_a_scope() {
    assert_eq!(
        text("{%- generation -%}x{% endgeneration +%}\n{% generation%}"),
        "{%- with -%}x{% endwith +%}\n{% with%}"
    );
}

#[test]
fn operators_become_calls_of_the_same_operands() {
    for (source, expected) in [
        ("{{ a % b }}", "{{ __percent(a , b) }}"),
        ("{{ a%b~c }}", "{{ __concat(__percent(a,b),c) }}"),
        ("{{ a * b % c / d % e + f }}", "{{ __percent(__percent(a * b , c) / d , e) + f }}"),
        ("{{ a ~ b ~ c == d }}", "{{ __concat(a , b , c) == d }}"),
        ("{{ a + b % -c ** d }}", "{{ a + __percent(b , -c ** d) }}"),
        ("{{ a - b % c }}", "{{ a - __percent(b , c) }}"),
        ("{{ 'x' % y | upper }}", "{{ __percent('x' , y | upper) }}"),
        ("{{ x is not none % 2 }}", "{{ __percent(x is not none , 2) }}"),
        ("{{ x not in y % z }}", "{{ x not in __percent(y , z) }}"),
        (
            "{{ f(a % b, c ~ d)[e % g] }}",
            "{{ f(__percent(a , b), __concat(c , d))[__percent(e , g)] }}",
        ),
        ("{{ (a ~ b) % (c ~ d) }}", "{{ __percent((__concat(a , b)) , (__concat(c , d))) }}"),
        (
            "{% if a % 2 == 0 and not b % 3 %}",
            "{% if __percent(a , 2) == 0 and not __percent(b , 3) %}",
        ),
        ("{%- set x = a\n  % b -%}", "{%- set x = __percent(a\n  , b) -%}"),
        (
            "{{ a ~ b if c ~ d else e ~ f }}",
            "{{ __concat(a , b) if __concat(c , d) else __concat(e , f) }}",
        ),
        ("{{ {'k': a ~ b, 'l': c} }}", "{{ {'k': __concat(a , b), 'l': c} }}"),
        (
            "{{ a.b['c'] ~ d.in ~ e[:f % 2] }}",
            "{{ __concat(a.b['c'] , d.in , e[:__percent(f , 2)]) }}",
        ),
    ] {
        assert_eq!(text(source), expected);
    }
}

#[test]
fn loops_know_their_length() {
    for (source, expected) in [
        ("{% for a, (b, c) in d %}", "{% for a, (b, c) in __items( d) %}"),
        (
            "{%for x in [1 if a else 2]if x in y-%}",
            "{%for x in __items( [1 if a else 2])if x in y-%}",
        ),
        ("{% for x in a ~ b recursive %}", "{% for x in __items( __concat(a , b)) recursive %}"),
        ("{% for x in %}", "{% for x in %}"),
    ] {
        assert_eq!(text(source), expected);
    }
}

#[test]
fn pythons_escapes_become_the_engines() {
    let source = r"{{ '\U0001f600\U00000041\a\v\/\\U' }}";
    assert_eq!(text(source), "{{ '\u{1f600}\\x41\\x07\\x0b\\\\/\\\\U' }}");
    for source in
        [r"{{ '\U123' }}", r"{{ '\U00110000' }}", r"{{ '\N{DASH}' }}", r"{{ '\U0000é000' }}"]
    {
        assert!(prepare(source).is_err(), "{source}");
    }
}

#[test]
fn the_names_are_those_of_the_functions() {
    assert!(text("{{ a % b }}").contains(&format!("{PERCENT}(")));
    assert!(text("{{ a ~ b }}").contains(&format!("{CONCAT}(")));
    assert!(text("{% for a in b %}").contains(&format!("{ITEMS}(")));
}

#[test]
fn literals_are_the_templates_own_text() {
    let literals = prepare("a{{ '<|x|>' + b }}{# c #}{% if d == \"e\\n\" %}f").unwrap().literals;
    assert_eq!(literals, "a\0<|x|>\0e\n\0f\0");
}

#[test]
fn what_nests_too_deep_is_refused_with_its_line() {
    let deep = |begin: &str, end: &str, count| {
        format!("line 1\n{{{{ {}x{} }}}}", begin.repeat(count), end.repeat(count))
    };
    for (source, reason) in [
        (deep("not ", "", 1001), "more than 1000 nested parts"),
        (deep("-", "", 1001), "more than 1000 nested parts"),
        (deep("x + ", "", 501), "more than 1000 nested parts"),
        (deep("", ".a", 501), "more than 1000 nested parts"),
        (deep("", "|f", 501), "more than 1000 nested parts"),
        (deep("x if y else ", "", 300), "more than 1000 nested parts"),
        (deep("(", ")", 101), "more than 100 brackets inside each other"),
        (deep("[", "]", 101), "more than 100 brackets inside each other"),
        (deep("(a+b+c+d+e+f+", ")", 100), "more than 1000 nested parts"),
        (deep("(", "+a+b+c+d+e+f)", 100), "more than 1000 nested parts"),
    ] {
        let problem = prepare(&source).unwrap_err();
        assert_eq!(problem.line, 2);
        assert!(problem.reason.contains(reason), "{problem}");
    }
    for block in ["if a", "for a in b", "set a", "with", "generation", "macro f()", "filter f"] {
        let source = format!("\n{}", format!("{{% {block} %}}").repeat(101));
        let problem = prepare(&source).unwrap_err();
        assert_eq!(problem.line, 2);
        assert!(problem.reason.contains("more than 100 blocks"), "{problem}");
    }
    let chain = format!("{{% if a %}}{}", "\n{% elif b %}".repeat(101));
    assert_eq!(prepare(&chain).unwrap_err().line, 101);
}

#[test]
fn what_only_goes_on_is_no_nesting() {
    let list = format!("{{{{ [{}] }}}}", "1, ".repeat(5000));
    assert_eq!(text(&list), list);
    let blocks = "{% if a %}{% elif b %}{% endif %}{% set x = 1 %}{{ x }}".repeat(5000);
    assert_eq!(text(&blocks), blocks);
}

#[test]
fn a_cycle_of_nothing_is_refused() {
    let problem = prepare("\n\n{% for i in [1] %}{{ loop.cycle( ) }}{% endfor %}").unwrap_err();
    assert_eq!((problem.line, &*problem.reason), (3, "loop.cycle() needs at least one argument"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any text is scanned to its end, and what holds no operator to rewrite comes out as it is.
    #[test]
    fn no_text_is_lost(
        parts in prop::collection::vec(
            prop_oneof![
                Just("{{"), Just("}}"), Just("{%"), Just("%}"), Just("{#"), Just("#}"), Just("-"),
                Just("raw"), Just("endraw"), Just("if"), Just("'"), Just("\""), Just("\\"),
                Just("("), Just(")"), Just("["), Just("}"), Just("1e"), Just("é"), Just("\n"),
                Just(" "), Just("is"), Just("not"), Just("x"), Just("*"), Just("|"),
            ],
            0..60,
        )
    ) {
        let source = parts.concat();
        if let Ok(prepared) = prepare(&source) {
            prop_assert_eq!(prepared.text.matches('\n').count(), source.matches('\n').count());
            if !source.contains(['%', '~']) {
                prop_assert_eq!(prepared.text, source);
            }
        }
    }
}
