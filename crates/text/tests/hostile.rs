//! Templates and tokenizers that were made to do harm: an error, in bounded memory and time, and
//! never the end of the process.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use monolith_text::{ChatOptions, ChatTemplate, Message};

fn render(source: &str) -> Result<String, String> {
    let template = ChatTemplate::from_source(source.to_owned(), "t.jinja".into());
    let messages = [Message::new("system", "Be brief."), Message::new("user", "Hello\nthere")];
    template
        .and_then(|template| template.render(&messages, &ChatOptions::default()))
        .map_err(|error| error.to_string())
}

/// An error of this template at this line, for this reason.
#[track_caller]
fn refused(source: &str, line: usize, reason: &str) {
    let error = render(source).unwrap_err();
    assert!(error.starts_with(&format!("t.jinja, chat template line {line}: ")), "{error}");
    assert!(error.contains(reason), "{error}");
}

#[test]
fn widths_without_bound() {
    for (source, reason) in [
        ("{{ messages | tojson(indent=70000000) }}", "an indent of 70000000"),
        ("{{ messages | tojson(indent=9223372036854775807) }}", "an indent of 9223372036854775807"),
        ("{{ messages | tojson(indent='x' * 9000000) }}", "MiB of text"),
        ("{{ 'a\\nb' | indent(99999999) }}", "an indent of 99999999"),
        ("{{ '%99999999d' | format(1) }}", "a width of more than"),
        ("{{ '%.99999999f' | format(1.5) }}", "a width of more than"),
        ("{{ '%*d' | format(99999999, 1) }}", "a width of *"),
        ("{{ '%99999999d' % 1 }}", "a width of more than"),
        ("{{ '{:99999999}'.format(1) }}", "a width of more than"),
        ("{{ '{:.99999999}'.format(1.5) }}", "a width of more than"),
        ("{{ '{:{}}'.format(1, 99999999) }}", "a field inside a field"),
        ("{{ range(99999999) | list }}", "range"),
        ("{{ 'x' * 99999999 * 99999999 }}", ""),
        ("{{ 'x' * 99999999 }}", ""),
        ("{{ [1] * 999999999 | list }}", ""),
        ("{{ [1, 2] | batch(999999999999, 0) | list }}", ""),
        ("{{ [1, 2] | slice(999999999999) | list }}", ""),
    ] {
        refused(&format!("\n\n{source}"), 3, reason);
    }
    // What is wide and no harm is done.
    assert_eq!(render("{{ [1] | tojson(indent=70000) }}").unwrap().len(), 70_005);
}

#[test]
fn growth_without_bound() {
    let doubling = |step: &str| {
        format!(
            "{{% set ns = namespace(x='0123456789') %}}{{% for i in range(99) %}}\n{{% set ns.x = \
             {step} %}}{{% endfor %}}{{{{ ns.x }}}}"
        )
    };
    for step in [
        "ns.x ~ ns.x",
        "ns.x + ns.x",
        "ns.x * 2",
        "[ns.x, ns.x] | join",
        "[ns.x, ns.x] | join(ns.x)",
        "ns.x.join([ns.x, ns.x])",
        "ns.x.replace('0', ns.x)",
        "ns.x | replace('0', ns.x)",
        "ns.x | replace('', ns.x)",
        "'%s%s' % (ns.x, ns.x)",
        "'%s%s' | format(ns.x, ns.x)",
        "'{0}{0}'.format(ns.x)",
        "ns.x | indent(ns.x, true)",
        "[ns.x, ns.x] | tojson",
        "[ns.x, ns.x] | string",
        "ns.x | tojson | tojson",
    ] {
        refused(&doubling(step), 2, "");
    }
    // Lists that hold themselves twice over: few values, endless text.
    let lists = |last: &str| {
        format!(
            "{{% set ns = namespace(x=['0123456789']) %}}{{% for i in range(60) %}}{{% set ns.x = \
             [ns.x, ns.x] %}}{{% endfor %}}\n{last}"
        )
    };
    for last in [
        "{{ ns.x }}",
        "{{ ns.x | tojson }}",
        "{{ ns.x | string }}",
        "{{ 'a' ~ ns.x }}",
        "{{ '%s' % (ns.x,) }}",
        "{{ '{}'.format(ns.x) }}",
        "{{ ns.x | upper }}",
        "{{ ns.x | trim }}",
        "{{ ns.x | indent }}",
        "{{ ns.x | replace('a', 'b') }}",
        "{{ ns.x | escape }}",
        "{{ ns.x | safe }}",
        "{{ ns.x | join }}",
        "{{ raise_exception(ns.x) }}",
    ] {
        refused(&lists(last), 2, "");
    }
}

#[test]
fn work_without_end() {
    let loops = "{% for a in range(90000) %}{% for b in range(90000) %}\n{% endfor %}{% endfor %}";
    refused(loops, 1, "too many steps");
    refused("\n{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", 2, "recursion");
    refused("\n{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", 2, "recursion");
    refused("\n{% block b %}{{ self.b() }}{% endblock %}", 2, "");
    refused("\n{% include 't' %}", 2, "");
}

#[test]
fn nesting_without_bound() {
    for (begin, end) in [
        ("not ", ""),
        ("- ", ""),
        ("(", ")"),
        ("[", "]"),
        ("{1:", "}"),
        ("x if x else ", ""),
        ("x ~ ", ""),
        ("x + ", ""),
        ("", ".x"),
        ("", "[0]"),
        ("", "|f"),
        ("", "()"),
        ("f(", ")"),
        ("-(not ", ")"),
    ] {
        // As deep as can be, and beyond what any stack holds.
        for count in [50, 90, 400, 20_000] {
            let source = format!("\n{{{{ {}x{} }}}}", begin.repeat(count), end.repeat(count));
            match render(&source) {
                Ok(_) => assert!(count < 20_000),
                Err(error) => assert!(error.contains("chat template line 2: "), "{error}"),
            }
        }
    }
    for (begin, end) in [
        ("{% if 1 %}", "{% endif %}"),
        ("{% for x in [1] %}", "{% endfor %}"),
        ("{% if 0 %}{% elif 1 %}", "{% endif %}"),
        ("{% set x %}", "{% endset %}"),
        ("{% generation %}", "{% endgeneration %}"),
        ("{% filter upper %}", "{% endfilter %}"),
        ("{% macro f() %}", "{% endmacro %}"),
    ] {
        for count in [45, 99, 20_000] {
            let source = format!("\n{}x{}", begin.repeat(count), end.repeat(count));
            match render(&source) {
                Ok(_) => assert!(count < 20_000),
                Err(error) => assert!(error.contains("chat template line 2: "), "{error}"),
            }
        }
    }
    // Values can nest deeper than any source.
    let deep = "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}\
                {% endfor %}\n";
    assert_eq!(render(&format!("{deep}x")).unwrap(), "x");
    refused(&format!("{deep}{{{{ ns.x }}}}"), 2, "more than 200 values inside each other");
    refused(&format!("{deep}{{{{ ns.x | tojson }}}}"), 2, "more than 200 values inside each other");
}

#[test]
fn panics_of_the_engine_are_errors() {
    refused("\n{% for i in [1] %}{{ loop.cycle() }}{% endfor %}", 2, "at least one argument");
    // The source does not show that there is no argument: the engine panics.
    let error = render("{% for i in [1] %}{{ loop.cycle(*[]) }}{% endfor %}").unwrap_err();
    assert!(error.starts_with("t.jinja, chat template: the template engine failed: "), "{error}");
}

#[test]
fn control_characters_are_for_the_caller_to_write_out() {
    let error = render("{{ raise_exception('\u{1b}]0;x\u{7}\u{1b}[31mRED') }}").unwrap_err();
    assert!(monolith_text::printable(&error).ends_with("\\u{1b}]0;x\\u{7}\\u{1b}[31mRED"));
}

#[test]
fn a_template_that_is_no_template_is_refused_by_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let path: &Path = dir.path();
    std::fs::write(path.join("chat_template.jinja"), "x".repeat((1 << 20) + 1)).unwrap();
    let error = ChatTemplate::load(path).unwrap_err().to_string();
    assert!(error.contains("chat_template.jinja: more than 1 MiB"), "{error}");
    std::fs::remove_file(path.join("chat_template.jinja")).unwrap();
    let config = serde_json::json!({"chat_template": "x".repeat((1 << 20) + 1)}).to_string();
    std::fs::write(path.join("tokenizer_config.json"), config).unwrap();
    let error = ChatTemplate::load(path).unwrap_err().to_string();
    assert!(
        error.contains("tokenizer_config.json: the chat template has 1048577 bytes"),
        "{error}"
    );
}
