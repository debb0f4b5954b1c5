//! Parsers with an injected fault, to test that the fuzzer finds it. They run only if `--parser`
//! names them.

use super::{Parser, nothing};
use crate::random::Random;

/// All of them. One input of four, the byte 1, triggers the fault.
pub const PARSERS: &[Parser] = &[
    Parser { name: "injected-panic", about: "panics", run: |bytes, _| panics(bytes), ..PLAIN },
    Parser { name: "injected-abort", about: "aborts", run: |bytes, _| aborts(bytes), ..PLAIN },
    Parser { name: "injected-hang", about: "never returns", run: |bytes, _| hangs(bytes), ..PLAIN },
    Parser {
        name: "injected-memory",
        about: "allocates a terabyte",
        run: |bytes, _| takes_memory(bytes),
        ..PLAIN
    },
];

const PLAIN: Parser = Parser {
    name: "",
    about: "",
    weight: 1,
    corpus: || Ok(vec![vec![0]]),
    mutate: one_in_four,
    prepare: nothing,
    run: |_, _| true,
};

fn one_in_four(_: &[u8], _: &[u8], random: &mut Random) -> Vec<u8> {
    vec![u8::from(random.one_in(4))]
}

fn is_faulty(bytes: &[u8]) -> bool {
    bytes == [1]
}

fn panics(bytes: &[u8]) -> bool {
    assert!(!is_faulty(bytes), "an injected fault");
    true
}

fn aborts(bytes: &[u8]) -> bool {
    if is_faulty(bytes) {
        std::process::abort();
    }
    true
}

fn hangs(bytes: &[u8]) -> bool {
    while is_faulty(bytes) {
        std::thread::park();
    }
    true
}

fn takes_memory(bytes: &[u8]) -> bool {
    let most: Vec<u8> = Vec::with_capacity(if is_faulty(bytes) { 1 << 40 } else { 1 });
    most.capacity() > 0
}
