//! The quality harness on engines whose distributions are known, and on the CPU engine.

use crate::{environment, load, pack};
use monolith_abi::{Phase, dump::Dump};
use monolith_engine::{Engine, EngineError, EngineInfo, HOST_CLOCK};
use monolith_harness::HarnessError;
use monolith_harness::identity::ids_sha256;
use monolith_harness::prompts::PromptIds;
use monolith_harness::quality::{
    ControlFile, Job, Kept, Measured, Outcome, Pair, PromptsId, QualityOptions, QualityRecord,
    TextId, TextIds, Wanted, forgery, positions, run,
};
use monolith_harness::runs::RunFolder;
use monolith_harness::subject::Ours;
use monolith_model::{Config, MemoryWeights, Tensor, Weights};
use monolith_pack::{Pack, Source, pack_to_bytes};
use std::path::Path;
use std::sync::Arc;

pub const VOCAB: usize = 8;

/// An engine that says the token's successor with logit `height`, and 0 of every other; at
/// positions of a multiple of `slips`, the one after that.
pub struct Fake {
    height: f32,
    slips: usize,
    info: EngineInfo,
    config: Config,
    logits: Vec<f32>,
    pub steps: usize,
    /// Steps after which it fails.
    pub fails_after: usize,
}

impl Fake {
    pub fn new(height: f32, slips: usize) -> Fake {
        let info = EngineInfo {
            engine: "cpu",
            variant: "fake".into(),
            device: "nothing".into(),
            blocks: 1,
            context: 64,
            kernels: None,
            cubin_sha256: None,
            nvrtc: None,
            steps_ahead: 1,
            launches_per_token: None,
            clock: HOST_CLOCK,
            any_shape: true,
        };
        let config = Config { vocab: VOCAB, ..crate::fixture::config() };
        let logits = vec![0.0; VOCAB];
        Fake { height, slips, info, config, logits, steps: 0, fails_after: usize::MAX }
    }
}

impl Engine for Fake {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn cached(&self) -> usize {
        0
    }

    fn step(&mut self, token: u32, position: usize) -> Result<u32, EngineError> {
        self.steps += 1;
        if self.steps > self.fails_after {
            return Err(EngineError::Stopped);
        }
        let far = if position.is_multiple_of(self.slips) { 2 } else { 1 };
        let next = (token as usize + far) % VOCAB;
        self.logits.fill(0.0);
        self.logits[next] = self.height;
        Ok(next as u32)
    }

    fn step_recorded(&mut self, _: u32, _: usize) -> Result<(u32, Dump), EngineError> {
        Err(EngineError::Stopped)
    }

    fn logits(&self, out: &mut Vec<f32>) {
        out.clone_from(&self.logits);
    }

    fn intermediate(&self, _: usize, _: Phase) -> Option<Vec<f32>> {
        None
    }
}

pub fn subject(weights: &str) -> Ours {
    Ours {
        engine: "monolith".into(),
        variant: "fake".into(),
        format: "bf16".into(),
        gpu: environment().gpu,
        blocks: 1,
        build: "a build".into(),
        kernels: None,
        cubin_sha256: None,
        nvrtc: None,
        commit: None,
        weights_sha256: weights.into(),
        run_id: environment().run_id,
    }
}

/// A text that counts modulo the vocabulary, and prompts of the same kind.
pub fn job(tokens: usize, prompts: usize, options: QualityOptions) -> Job {
    let text: Vec<u32> = (0..tokens).map(|index| (index % VOCAB) as u32).collect();
    let prompts: Vec<Vec<u32>> =
        (0..prompts).map(|index| vec![(index % VOCAB) as u32; 3]).collect();
    let measured = Measured {
        model: "counting".into(),
        reference: subject("reference"),
        reference_formats: "bf16".into(),
        candidate: Ours { format: "fp8".into(), ..subject("candidate") },
        candidate_formats: "fp8".into(),
        text: TextId {
            name: "counting.txt".into(),
            sha256: String::new(),
            rule: String::new(),
            tokens_whole: tokens,
            tokens,
            ids_sha256: ids_sha256(std::slice::from_ref(&text)),
        },
        prompts: PromptsId {
            set_sha256: String::new(),
            rule: String::new(),
            ids_sha256: ids_sha256(&prompts),
        },
        options,
        tensors_sha256: Some("tensors".into()),
        control_sha256: None,
    };
    Job { measured, text, prompts, control: None }
}

pub fn small() -> QualityOptions {
    QualityOptions { context: 16, stride: 8, kl_positions: 20, new: 6 }
}

/// What transformers would say of these prompts if its f32 were an engine that slips like this,
/// and its bf16 gave token 0 for ever.
pub fn control(job: &Job, slips: usize) -> ControlFile {
    let new = job.measured.options.new;
    let mut exact = Fake::new(1.0, slips);
    exact.info.context = usize::MAX;
    let f32: Vec<Vec<u32>> = job
        .prompts
        .iter()
        .map(|prompt| {
            let first = exact.prefill(prompt).expect("it runs");
            let more = exact.decode(first, prompt.len(), new - 1).expect("it runs").tokens;
            [vec![first], more].concat()
        })
        .collect();
    let json = serde_json::json!({
        "schema_version": 1, "engine": "transformers", "torch": "2", "transformers": "5",
        "attention": "eager", "device": "cpu", "tensors_sha256": "tensors",
        "prompt_ids_sha256": job.measured.prompts.ids_sha256,
        "bf16": vec![vec![0; new]; f32.len()], "f32": f32, "f32_fed": f32,
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("control.json");
    std::fs::write(&path, json.to_string()).expect("it is written");
    let wanted = Wanted { tensors_sha256: "tensors", prompts: &job.prompts, new };
    ControlFile::read(&path, wanted).expect("it is a control")
}

pub fn outcome(
    reference: &mut Fake,
    candidate: &mut Fake,
    job: &Job,
    folder: &Path,
    said: &mut Vec<String>,
) -> Result<Outcome, HarnessError> {
    let mut pair = Pair { reference, candidate };
    let mut progress = |what: &str| said.push(what.to_owned());
    run(&mut pair, job, folder, &mut progress)
}

fn measure(
    reference: &mut Fake,
    candidate: &mut Fake,
    job: &Job,
    folder: &Path,
    said: &mut Vec<String>,
) -> Result<QualityRecord, HarnessError> {
    Ok(outcome(reference, candidate, job, folder, said)?.record)
}

/// A measurement as large as the gate wants it. The reference is right everywhere, f32 slips at
/// every 25th position, and the candidate as told.
pub fn large(heights: [f32; 2], slips: usize) -> Outcome {
    let options = QualityOptions { context: 64, stride: 32, ..QualityOptions::default() };
    let job = job(10_001, 100, QualityOptions { new: 64, ..options });
    let control = control(&job, 25);
    let folder = tempfile::tempdir().expect("a folder");
    let (mut reference, mut candidate) =
        (Fake::new(heights[0], usize::MAX), Fake::new(heights[1], slips));
    reference.info.context = 80;
    candidate.info.context = 80;
    let job = job.with_control(control);
    outcome(&mut reference, &mut candidate, &job, folder.path(), &mut Vec::new())
        .expect("it is measured")
}

/// Two engines that differ by their heights alone.
pub fn passing() -> Outcome {
    large([4.0, 3.9], usize::MAX)
}

/// Probability of the successor.
fn likely(height: f64) -> f64 {
    height.exp() / (height.exp() + (VOCAB - 1) as f64)
}

#[test]
fn perplexity_and_divergence_are_what_the_distributions_say() {
    let folder = tempfile::tempdir().unwrap();
    let (mut reference, mut candidate) = (Fake::new(3.0, usize::MAX), Fake::new(1.0, usize::MAX));
    // Position 0 is a multiple of every number, so the first token after an empty cache is wrong.
    let job = job(40, 4, small());
    let record =
        measure(&mut reference, &mut candidate, &job, folder.path(), &mut Vec::new()).unwrap();
    let (p, q) = (likely(3.0), likely(1.0));
    let other = |p: f64| (1.0 - p) / (VOCAB - 1) as f64;
    // 38 successors, and one token that is not what the engines say.
    let mean = |p: f64| -(38.0 * p.ln() + other(p).ln()) / 39.0;
    let found = &record.numbers.perplexity;
    assert_eq!(found.scored, 39);
    assert!((found.reference - mean(p).exp()).abs() < 1e-9, "{found:?}");
    assert!((found.candidate - mean(q).exp()).abs() < 1e-9, "{found:?}");
    assert!((found.rise - (mean(q) - mean(p)).exp() + 1.0).abs() < 1e-9, "{found:?}");
    // The distributions are the same everywhere, but for which token is the likely one.
    let kl = p * (p / q).ln() + (1.0 - p) * (other(p) / other(q)).ln();
    let found = &record.numbers.kl;
    assert_eq!((found.positions, found.same_top_1, found.top_1), (20, 20, 1.0));
    for value in [found.mean, found.p99, found.max] {
        assert!((value - kl).abs() < 1e-9, "{found:?}, {kl}");
    }
    let agreement = &record.numbers.agreement;
    assert_eq!((agreement.greedy, agreement.prefix, agreement.forced), (1.0, 1.0, 1.0));
    assert_eq!((agreement.prompts, agreement.new, agreement.whole), (4, 6, 4));
}

#[test]
fn the_three_agreements_count_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    // Prompts of three tokens: new token `i` is said at position `2 + i`. The candidate slips at
    // positions 0 and 5: for the fourth of the six new tokens.
    let (mut reference, mut candidate) = (Fake::new(3.0, usize::MAX), Fake::new(3.0, 5));
    let job = job(40, 2, small());
    let record =
        measure(&mut reference, &mut candidate, &job, folder.path(), &mut Vec::new()).unwrap();
    let found = &record.numbers.agreement;
    // By itself it is one ahead from there on; fed the reference's tokens, it errs once.
    assert_eq!((found.prefix, found.greedy), (0.5, 0.5));
    assert!((found.forced - 5.0 / 6.0).abs() < 1e-12, "{found:?}");
    assert_eq!(found.whole, 0);
    assert!(record.numbers.kl.top_1 < 1.0 && record.numbers.kl.mean > 0.0);
    // And it can come back: another slip that the reference makes too does not.
    let (mut reference, mut candidate) = (Fake::new(3.0, 7), Fake::new(3.0, 5));
    let record =
        measure(&mut reference, &mut candidate, &job, folder.path(), &mut Vec::new()).unwrap();
    // Reference +1 +1 +1 +1 +1 +2, candidate +1 +1 +1 +2 +1 +1: equal at the end again.
    let found = &record.numbers.agreement;
    assert_eq!((found.prefix, found.greedy, found.forced), (0.5, 4.0 / 6.0, 4.0 / 6.0));
}

#[test]
fn the_own_control_compares_the_reference_with_f32() {
    let folder = tempfile::tempdir().unwrap();
    // f32 slips at positions 0 and 5 like the candidate of the test above, and the reference
    // never: by itself it agrees up to there, and fed the tokens of f32 everywhere but there.
    let begun = job(40, 2, small());
    let job = begun.clone().with_control(control(&begun, 5));
    let (mut reference, mut candidate) = (Fake::new(3.0, usize::MAX), Fake::new(3.0, usize::MAX));
    let (own, said) = (&mut reference, &mut Vec::new());
    let outcome = outcome(own, &mut candidate, &job, folder.path(), said).unwrap();
    let own = outcome.record.own_control.as_ref().unwrap();
    assert_eq!((own.agreement.prefix, own.agreement.greedy), (0.5, 0.5));
    assert!((own.agreement.forced - 5.0 / 6.0).abs() < 1e-12, "{own:?}");
    let [first, _] = &outcome.tokens.prompts[..] else { panic!("{:?}", outcome.tokens) };
    assert_eq!(first.reference, [1, 2, 3, 4, 5, 6]);
    assert_eq!(first.reference_fed, Some(vec![1, 2, 3, 4, 6, 7]));
    assert_eq!(first.candidate_fed, first.reference);
    // The candidate is compared with the reference, whatever f32 says.
    assert_eq!(outcome.record.numbers.agreement.greedy, 1.0);
    let control = outcome.record.control.as_ref().unwrap();
    assert!(control.agreement.greedy < 0.5, "{control:?}");
}

#[test]
fn every_step_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let begun = job(40, 2, small());
    let job = begun.clone().with_control(control(&begun, 5));
    let (mut reference, mut candidate) = (Fake::new(3.0, 11), Fake::new(2.0, 5));
    let mut said = Vec::new();
    measure(&mut reference, &mut candidate, &job, folder.path(), &mut said).unwrap();
    let steps = reference.steps + candidate.steps;
    // A step of both engines over scored tokens is one report.
    assert!(said.len() * 2 >= steps, "{} reports of {steps} steps", said.len());
    for wanted in ["window 1 of 4, step 15 of 15", "window 2 of 4, step 1 of 15", "prompt 2 of 2, "]
    {
        assert!(said.iter().any(|what| what.starts_with(wanted)), "{wanted}: {said:?}");
    }
}

/// Stops the measurement at one report, as Ctrl-C does.
struct StopAt;

#[test]
fn a_stop_at_any_step_loses_that_window_or_prompt_alone() {
    let begun = job(60, 3, small());
    let job = begun.clone().with_control(control(&begun, 5));
    let engines = || (Fake::new(3.0, 11), Fake::new(2.0, 5));
    let undated = |record: QualityRecord| QualityRecord { date: String::new(), ..record }.sealed();
    let folder = tempfile::tempdir().unwrap();
    let (mut reference, mut candidate) = engines();
    let mut said = Vec::new();
    let whole = measure(&mut reference, &mut candidate, &job, folder.path(), &mut said);
    let whole = undated(whole.unwrap());
    for stop in (0..said.len()).step_by(7) {
        let folder = tempfile::tempdir().unwrap();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (mut reference, mut candidate) = engines();
            let mut pair = Pair { reference: &mut reference, candidate: &mut candidate };
            let mut reports = 0;
            let mut progress = |_: &str| {
                if reports == stop {
                    std::panic::resume_unwind(Box::new(StopAt));
                }
                reports += 1;
            };
            run(&mut pair, &job, folder.path(), &mut progress).map(drop)
        }));
        assert!(ended.unwrap_err().is::<StopAt>(), "{stop}");
        let (mut reference, mut candidate) = engines();
        let again = measure(&mut reference, &mut candidate, &job, folder.path(), &mut Vec::new());
        assert_eq!(undated(again.unwrap()), whole, "{stop}");
    }
}

#[test]
fn an_engine_agrees_with_itself() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(100, 3, small());
    let (mut reference, mut candidate) = (Fake::new(2.5, 3), Fake::new(2.5, 3));
    let record =
        measure(&mut reference, &mut candidate, &job, folder.path(), &mut Vec::new()).unwrap();
    let numbers = &record.numbers;
    assert_eq!((numbers.perplexity.rise, numbers.kl.max, numbers.kl.top_1), (0.0, 0.0, 1.0));
    assert_eq!((numbers.agreement.greedy, numbers.agreement.whole), (1.0, 3));
    // But it is too little to pass, and says so.
    assert!(!record.quality_passed && forgery(&record).is_none());
    let begins = ["perplexity: 99 tokens scored", "kl: 20 positions", "agreement: 3 prompts x 6"];
    let failures = record.verdicts().as_written.failures;
    for (failure, begin) in failures.iter().zip(begins) {
        assert!(failure.starts_with(begin), "{failure}");
    }
    assert_eq!(failures.len(), 3, "{failures:?}");
    assert_eq!(record.verdicts().after_the_same_text.failures, failures);
}

#[test]
fn going_on_gives_what_one_go_gives() {
    let job = job(100, 5, small());
    let control = control(&job, 4);
    let job = job.with_control(control);
    let engines = || (Fake::new(3.0, 11), Fake::new(2.0, 5));
    let undated = |record: QualityRecord| QualityRecord { date: String::new(), ..record }.sealed();
    let folder = tempfile::tempdir().unwrap();
    let (mut reference, mut candidate) = engines();
    let whole = measure(&mut reference, &mut candidate, &job, folder.path(), &mut Vec::new());
    let whole = undated(whole.unwrap());
    let all = candidate.steps;
    for fails_after in [0, 1, 40, 120, all - 30, all - 1] {
        let folder = tempfile::tempdir().unwrap();
        let (mut reference, mut candidate) = engines();
        candidate.fails_after = fails_after;
        let ended = measure(&mut reference, &mut candidate, &job, folder.path(), &mut Vec::new());
        assert!(ended.is_err(), "{fails_after}");
        let (mut reference, mut candidate) = engines();
        let mut said = Vec::new();
        let record =
            measure(&mut reference, &mut candidate, &job, folder.path(), &mut said).unwrap();
        assert_eq!(undated(record), whole, "{fails_after}");
        if fails_after >= 40 {
            assert!(said[0].starts_with("continuing after"), "{said:?}");
            assert!(candidate.steps < all, "{fails_after}: nothing was saved");
        }
        let left: Vec<_> = folder.path().read_dir().unwrap().flatten().collect();
        assert_eq!(left.len(), 3, "the record, its tokens and its control: {left:?}");
    }
}

#[test]
fn a_later_record_of_one_candidate_stands_beside_the_first() {
    let results = tempfile::tempdir().unwrap();
    let folder = RunFolder::open(results.path(), &environment()).unwrap();
    let job = job(60, 3, small());
    let mut paths = Vec::new();
    for build in ["a build", "a later build", "a last build"] {
        let mut job = job.clone();
        job.measured.candidate.build = build.into();
        let (mut reference, mut candidate) = (Fake::new(3.0, 11), Fake::new(2.0, 5));
        let (own, said) = (&mut reference, &mut Vec::new());
        let outcome = outcome(own, &mut candidate, &job, &folder.path, said).unwrap();
        // It was written when it was measured: the folder does not keep it twice.
        paths.push(folder.add_quality(&outcome).unwrap());
        assert_eq!(folder.add_quality(&outcome).unwrap(), paths[paths.len() - 1]);
    }
    let kept: Vec<_> = folder.qualities().unwrap().into_iter().map(|kept| kept.record).collect();
    let builds: Vec<_> = kept.iter().map(|record| &*record.measured.candidate.build).collect();
    assert_eq!(builds, ["a build", "a later build", "a last build"], "{paths:?}");
    assert_eq!(paths[0], folder.path.join(kept[0].file_name()));
    assert!(paths[2].to_string_lossy().ends_with("_03.json"), "{paths:?}");
}

#[test]
fn another_measurement_starts_over_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let begun = job(100, 5, small());
    let begin = || {
        let (mut reference, mut candidate) = (Fake::new(3.0, 11), Fake::new(2.0, 5));
        candidate.fails_after = 100;
        let ended = measure(&mut reference, &mut candidate, &begun, folder.path(), &mut Vec::new());
        assert!(ended.is_err());
    };
    let again = |job: &Job| {
        let (mut reference, mut candidate) = (Fake::new(3.0, 11), Fake::new(2.0, 5));
        let mut said = Vec::new();
        let done = measure(&mut reference, &mut candidate, job, folder.path(), &mut said);
        (done.unwrap(), said.swap_remove(0))
    };
    let over = |job: &Job, why: &str| {
        begin();
        let (_, said) = again(job);
        assert!(said.contains(why) && said.ends_with("starting over"), "{said}");
    };
    over(&job(99, 5, small()), "(text)");
    over(&job(100, 4, small()), "(prompts)");
    over(&job(100, 5, QualityOptions { stride: 9, ..small() }), "(options)");
    let mut other = begun.clone();
    other.measured.candidate.build.push('0');
    other.measured.reference.weights_sha256.push('0');
    over(&other, "(weights, build)");
    let mut other = begun.clone();
    other.measured.candidate.blocks = 2;
    over(&other, "(engine or run)");
    over(&begun.clone().with_control(control(&begun, 4)), "(control)");
    begin();
    let state = folder.path().read_dir().unwrap().flatten().map(|entry| entry.path());
    let state = state.into_iter().find(|path| path.extension().is_some_and(|end| end == "state"));
    std::fs::write(state.unwrap(), "{").unwrap();
    assert!(again(&begun).1.contains("is damaged: starting over"));
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |job: &Job, what: &str| {
        let (mut reference, mut candidate) = (Fake::new(3.0, 11), Fake::new(2.0, 5));
        let done = measure(&mut reference, &mut candidate, job, folder.path(), &mut Vec::new());
        let error = done.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    refused(&job(1, 2, small()), "fewer than two tokens");
    refused(&job(9, 0, small()), "a prompt is missing");
    refused(&job(9, 1, QualityOptions { stride: 16, ..small() }), "a stride of 16");
    refused(&job(99, 1, QualityOptions { context: 66, ..small() }), "65 positions are needed");
    refused(&job(9, 1, QualityOptions { new: 63, ..small() }), "65 positions are needed");
    let many = QualityOptions { kl_positions: usize::MAX, ..small() };
    refused(&job(9, 1, many), "KL positions");
    refused(&job(9, 1, QualityOptions { new: usize::MAX, ..small() }), "new tokens fit");
    assert_eq!(positions(&small(), 10, &[vec![0; 2]]), 9);
    // Logits that are no numbers, and a greedy token that is not their argmax.
    for height in [f32::NAN, -1.0] {
        let (mut reference, mut candidate) = (Fake::new(3.0, 11), Fake::new(height, 5));
        let job = job(40, 2, small());
        let done = measure(&mut reference, &mut candidate, &job, folder.path(), &mut Vec::new());
        assert!(done.unwrap_err().to_string().contains("not their argmax"));
    }
}

/// The fixture's weights, each changed a little.
fn disturbed(share: f32) -> Arc<Pack> {
    let weights = crate::fixture::weights();
    let mut state = 5u64;
    let other = MemoryWeights::from_fn(weights.config(), |tensor, row, col| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        let row = if tensor.is_norm() || tensor == Tensor::FinalNorm { 0 } else { row };
        weights.view(tensor).at(row, col).to_f32() * (1.0 + share * unit)
    });
    let source = Source { model: "disturbed".into(), revision: None };
    Arc::new(
        Pack::from_bytes(pack_to_bytes(&other, source), "disturbed.pack").expect("it is whole"),
    )
}

#[test]
fn the_cpu_engine_is_measured_end_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let text_path = dir.path().join("text.txt");
    std::fs::write(&text_path, "Some text that repeats itself, and again. ".repeat(30)).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let set = root.join("data/prompts/quality.jsonl");
    let measured = |candidate: Arc<Pack>| {
        let vocab = pack().config().vocab;
        let text = TextIds::read(&text_path, dir.path(), vocab, Some(250)).unwrap();
        let prompts = monolith_harness::prompts::prompt_ids(&set, dir.path(), vocab).unwrap();
        assert_eq!(prompts.ids.len(), 100);
        let prompts = PromptIds { ids: prompts.ids[..3].to_vec(), ..prompts };
        let options = QualityOptions { context: 64, stride: 32, kl_positions: 100, new: 16 };
        let room = positions(&options, text.ids.len(), &prompts.ids);
        let mut engines = [pack(), candidate.clone()].map(|pack| load(pack, room).unwrap());
        let run_id = environment().run_id;
        let own = pack();
        let subjects = [(&engines[0], &own), (&engines[1], &candidate)]
            .map(|(engine, pack)| Ours::of(engine.info(), pack, &run_id).unwrap());
        let job = Job::new([&own, &candidate], subjects, text, prompts, options).unwrap();
        let [reference, candidate] = &mut engines;
        let (reference, candidate) = (reference.as_mut(), candidate.as_mut());
        let mut pair = Pair { reference, candidate };
        run(&mut pair, &job, dir.path(), &mut |_| ()).unwrap().record
    };
    let same = measured(pack());
    let numbers = &same.numbers;
    assert_eq!((numbers.perplexity.scored, numbers.kl.positions), (249, 100));
    assert_eq!((numbers.perplexity.rise, numbers.kl.max), (0.0, 0.0));
    assert_eq!((numbers.agreement.forced, numbers.agreement.prefix), (1.0, 1.0));
    assert_eq!(same.measured.reference_formats, "bf16");
    let other = measured(disturbed(0.2));
    let (numbers, kl) = (&other.numbers, &other.numbers.kl);
    assert_eq!(numbers.perplexity.nll_reference, same.numbers.perplexity.nll_reference);
    assert!(0.0 < kl.mean && kl.mean < kl.p99 && kl.p99 <= kl.max, "{kl:?}");
    assert!(numbers.agreement.forced < 1.0 && numbers.perplexity.rise != 0.0, "{numbers:?}");
    let kept = Kept::read(&dir.path().join(other.file_name())).unwrap();
    assert_eq!(kept, Kept { record: other.clone(), doubt: None });
    assert_ne!(other.file_name(), same.file_name());
    assert!(!other.quality_passed && other.own_control.is_none());
}
