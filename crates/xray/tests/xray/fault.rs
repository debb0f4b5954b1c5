//! The report of a step that timed out.

use monolith_abi::fault::{BlockWait, FaultDump};
use monolith_abi::{Phase, Role, WaitKind};
use monolith_xray::fault::{ChainEnd, FaultFileError, Report, chain, read, write};
use proptest::prelude::*;

fn wait(block: u16, phase: Phase, producer: u16) -> BlockWait {
    BlockWait {
        block,
        role: Role::Consumer,
        warp: 2,
        kind: WaitKind::Exchange,
        phase,
        layer: Some(1),
        producer,
        unit: 40,
        expected: 9,
        seen: 8,
    }
}

fn fault(cause: BlockWait, waits: Vec<BlockWait>) -> FaultDump {
    FaultDump {
        variant: "bf16-flag".into(),
        device: "a test".into(),
        model: "a model".into(),
        blocks: 8,
        position: 20,
        timeout_ns: 200_000_000,
        cause,
        waits,
    }
}

#[test]
fn a_chain_is_followed_to_its_end() {
    let ring = BlockWait { kind: WaitKind::RingFull, ..wait(3, Phase::Qkv, 3) };
    let loader = BlockWait { role: Role::Loader, ..ring.clone() };
    for (waits, length, end) in [
        (vec![], 1, ChainEnd::Idle(1)),
        (vec![wait(1, Phase::Qkv, 1)], 2, ChainEnd::Itself(1)),
        (vec![wait(1, Phase::Qkv, 3), ring.clone()], 3, ChainEnd::Ring(3)),
        // A loader's wait is never the next link.
        (vec![wait(1, Phase::Qkv, 3), loader], 2, ChainEnd::Idle(3)),
        (vec![wait(1, Phase::Qkv, 2), wait(2, Phase::Down, 1)], 3, ChainEnd::Circle(1)),
        (vec![wait(1, Phase::Qkv, 0)], 2, ChainEnd::Circle(0)),
    ] {
        let dump = fault(wait(0, Phase::OProj, 1), waits);
        let (links, seen) = chain(&dump);
        assert_eq!((links.len(), seen), (length, end), "{links:?}");
    }
    let (links, end) = (ring.clone(), ChainEnd::Ring(3));
    assert_eq!(chain(&fault(ring.clone(), vec![])), (vec![&links], end));
}

#[test]
fn the_report_groups_blocks_that_wait_for_the_same() {
    let loader =
        BlockWait { role: Role::Loader, kind: WaitKind::RingEmpty, ..wait(5, Phase::Down, 5) };
    let waits =
        vec![wait(0, Phase::OProj, 1), wait(4, Phase::OProj, 1), wait(6, Phase::Qkv, 2), loader];
    let said = Report(&fault(wait(0, Phase::OProj, 1), waits)).to_string();
    for line in [
        "a model on a test, bf16-flag, 8 blocks: the step at position 20 did not end",
        "block 0 (warp 2) waited for o_proj of layer 1 from block 1 (unit 40: expected epoch 9, ",
        "block 1 waited for nothing",
        "consumers, 3 of 8 waiting:",
        "1 block for qkv of layer 1 from block 2",
        "2 blocks for o_proj of layer 1 from block 1",
        ": 0 4\n",
        "loaders, 1 of 8 waiting:",
        "ring stage 40 to be released for down of layer 1",
    ] {
        assert!(said.contains(line), "{line:?} in:\n{said}");
    }
    assert!(said.find("qkv of layer 1 from block 2") < said.find("2 blocks for o_proj"));
}

#[test]
fn what_is_no_fault_is_refused_in_words() {
    let text = String::from_utf8(write(&fault(wait(0, Phase::OProj, 1), vec![]))).unwrap();
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} in {text}");
        read(text.replacen(from, to, 1).as_bytes()).unwrap_err()
    };
    assert_eq!(refused("fault/1", "fault/2"), FaultFileError::Schema("monolith-fault/2".into()));
    let name = |field, name: &str| FaultFileError::UnknownName { field, name: name.into() };
    assert_eq!(refused("o_proj", "p_roj"), name("phase", "p_roj"));
    assert_eq!(refused("consumer", "customer"), name("role", "customer"));
    assert_eq!(refused("exchange", "market"), name("kind", "market"));
    assert_eq!(
        refused("\"producer\": 1", "\"producer\": 8"),
        FaultFileError::UnknownBlock { block: 8, blocks: 8 }
    );
    assert!(matches!(refused("\"warp\"", "\"wrap\""), FaultFileError::Json(_)));
    assert!(matches!(read(b"{"), Err(FaultFileError::Json(_))));
    assert_eq!(read(&vec![b' '; 5 << 20]), Err(FaultFileError::TooLong));
}

type Draft = (u16, u16, usize, usize, usize, Option<u16>);

fn draft() -> impl Strategy<Value = Draft> {
    let block = any::<u16>();
    (block, block, 0..3_usize, 0..8_usize, 0..2_usize, any::<Option<u16>>())
}

proptest! {
    #[test]
    fn a_file_gives_back_the_fault(
        blocks in 1..9_u16,
        drafts in prop::collection::vec(draft(), 1..30),
    ) {
        let wait = |(block, producer, kind, phase, role, layer): Draft| BlockWait {
            role: Role::ALL[role],
            kind: WaitKind::ALL[kind],
            phase: Phase::ALL[phase],
            layer,
            ..wait(block % blocks, Phase::Qkv, producer % blocks)
        };
        let waits: Vec<BlockWait> = drafts.into_iter().map(wait).collect();
        let dump = FaultDump { blocks, ..fault(waits[0].clone(), waits) };
        prop_assert_eq!(&read(&write(&dump)).unwrap(), &dump);
        let (links, _) = chain(&dump);
        prop_assert!(links.len() <= usize::from(blocks) + 1);
        prop_assert!(Report(&dump).to_string().contains("from the cause on"));
    }

    #[test]
    fn noise_is_refused_and_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&bytes).is_err());
    }
}

#[test]
fn texts_that_steer_a_terminal_are_refused_without_being_repeated() {
    let whole = write(&fault(wait(0, Phase::Qkv, 1), vec![]));
    let json: serde_json::Value = serde_json::from_slice(&whole).unwrap();
    for (pointer, what) in [
        ("/variant", "variant is not a short line of text"),
        ("/device", "device is not a short line of text"),
        ("/model", "model is not a short line of text"),
        ("/schema", "schema is "),
        ("/cause/role", "role: unknown name "),
    ] {
        let mut json = json.clone();
        *json.pointer_mut(pointer).unwrap() = "\u{1b}[31m\u{9b}".into();
        let refusal = read(json.to_string().as_bytes()).unwrap_err().to_string();
        assert!(refusal.starts_with(what) && !refusal.chars().any(char::is_control), "{refusal}");
    }
    let mut json = json.clone();
    json["\u{1b}[31m"] = 1.into();
    let refusal = read(json.to_string().as_bytes()).unwrap_err().to_string();
    assert!(!refusal.chars().any(char::is_control), "{refusal}");
}

/// A chain visits each block once, whatever the file says.
#[test]
fn a_chain_of_every_block_is_followed_at_once() {
    let waits = (1..u16::MAX).map(|block| wait(block, Phase::Qkv, block + 1)).collect();
    let dump = FaultDump { blocks: u16::MAX, ..fault(wait(0, Phase::Qkv, 1), waits) };
    let (links, end) = chain(&dump);
    assert_eq!((links.len(), end), (usize::from(u16::MAX), ChainEnd::Nobody(u16::MAX - 1)));
}
