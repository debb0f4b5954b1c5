use super::*;
use crate::synth::{file_bytes, shape, weights, write};
use crate::{Bf16View, Checkpoint, LayerTensor, Weights};
use safetensors::tensor::TensorView;
use sha2::{Digest, Sha256};

const SEED: u64 = 11;
const RANK: usize = 5;
const USED: usize = 9;

fn small() -> Config {
    Config { vocab: 70, layers: 2, hidden: 48, intermediate: 80, ..shape("tiny").unwrap() }
}

type Entry = (String, Dtype, Vec<usize>, Vec<u8>);

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        crate::synth::mix(self.0)
    }

    /// Around this size, of both signs.
    fn float(&mut self, size: f32) -> f32 {
        size * (self.next() % 2001) as f32 / 1000.0 - size
    }

    fn floats(&mut self, count: usize, size: f32) -> Vec<u8> {
        (0..count).flat_map(|_| self.float(size).to_le_bytes()).collect()
    }

    fn coded(&mut self, name: &str, [rows, cols]: [usize; 2], size: f32) -> [Entry; 2] {
        let codes = (0..rows * cols).map(|_| (self.next() % 255) as u8).collect();
        let scales = self.floats(rows, size);
        [
            (name.to_owned(), Dtype::I8, vec![rows, cols], codes),
            (format!("{name}_scale"), Dtype::F32, vec![rows], scales),
        ]
    }
}

fn entries(config: &Config) -> Vec<Entry> {
    let (mut numbers, mut entries) = (Numbers(1), Vec::new());
    for tensor in Tensor::all(config) {
        let (name, (rows, cols)) = (tensor.name(), tensor.shape(config));
        if tensor.is_norm() {
            let values = (0..cols).flat_map(|_| bf16::from_f32(numbers.float(2.0)).to_le_bytes());
            entries.push((name, Dtype::BF16, vec![cols], values.collect()));
            continue;
        }
        entries.push((format!("{name}.scale"), Dtype::F32, vec![1], numbers.floats(1, 3.0)));
        if tensor == Tensor::Embedding {
            let offset = numbers.floats(cols, 0.05);
            entries.push((format!("{name}.offset"), Dtype::F32, vec![cols], offset));
            entries.extend(numbers.coded(&format!("{name}.rows"), [USED, cols], 1e-3));
        } else {
            entries.extend(numbers.coded(&format!("{name}.a"), [RANK, cols], 1e-3));
            entries.extend(numbers.coded(&format!("{name}.b"), [RANK, rows], 1e-2));
        }
    }
    entries
}

/// A tensor as this module's first page defines it, element by element.
fn slowly(config: &Config, entries: &[Entry], tensor: Tensor, base: Bf16View) -> Vec<u8> {
    let find = |end: &str| {
        let name = tensor.name() + end;
        &entries.iter().find(|entry| entry.0 == name).unwrap().3
    };
    let float = |end: &str, at: usize| {
        f32::from_le_bytes(find(end)[4 * at..4 * at + 4].try_into().unwrap())
    };
    let code = |end: &str, at: usize| f32::from(find(end)[at] as i8);
    if tensor.is_norm() {
        return find("").clone();
    }
    let (rows, cols) = tensor.shape(config);
    let mut bytes = Vec::new();
    for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
        let value = if tensor != Tensor::Embedding {
            let mut sum = float(".scale", 0) * base.at(row, col).to_f32();
            for r in 0..RANK {
                let a = code(".a", r * cols + col) * float(".a_scale", r);
                let b = code(".b", r * rows + row) * float(".b_scale", r);
                let product = b * a;
                sum += product;
            }
            sum
        } else if row < USED {
            code(".rows", row * cols + col) * float(".rows_scale", row)
        } else {
            let usual = float(".scale", 0) * base.at(row, col).to_f32();
            usual + float(".offset", col)
        };
        bytes.extend(bf16::from_f32(value).to_le_bytes());
    }
    bytes
}

/// A folder of these deltas, in this many files.
fn folder(config: &Config, entries: &[Entry], files: usize, sha256: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    put("config.json", &config.to_json());
    put("standin.json", &format!(r#"{{"base_seed": {SEED}, "model_sha256": "{sha256}"}}"#));
    for name in &COMPANIONS[1..] {
        put(name, name);
    }
    for (at, part) in entries.chunks(entries.len().div_ceil(files)).enumerate() {
        let views = part.iter().map(|(name, dtype, shape, bytes)| {
            (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        let name = format!("deltas-{:05}-of-{files:05}.safetensors", at + 1);
        safetensors::serialize_to_file(views, None, &dir.path().join(name)).unwrap();
    }
    dir
}

/// The file that is to come out: the header of the weights beneath, and values made slowly.
fn expected(config: &Config, entries: &[Entry]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    write(config, SEED, &dir.path().join("base"), &|_| Ok(())).unwrap();
    let mut file = std::fs::read(dir.path().join("base/model.safetensors")).unwrap();
    file.truncate(file.len() - file_bytes(config) as usize);
    let base = weights(config, SEED);
    for tensor in Tensor::all(config) {
        file.extend(slowly(config, entries, tensor, base.view(tensor)));
    }
    file
}

#[track_caller]
fn refused(dir: &Path, words: &[&str]) {
    let message = Deltas::open(dir).unwrap_err().to_string();
    for word in words {
        assert!(message.contains(word), "{word}: {message}");
    }
}

#[test]
fn the_folder_is_what_the_slow_way_gives_whatever_the_files_and_threads() {
    let config = small();
    let entries = entries(&config);
    let expected = expected(&config, &entries);
    for (files, threads) in [(1, 1), (3, 4)] {
        let deltas = folder(&config, &entries, files, &hash(&expected));
        let out = tempfile::tempdir().unwrap();
        let out = out.path().join("model");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let opened = Deltas::open(deltas.path()).unwrap();
        assert_eq!((opened.config(), opened.seed()), (&config, SEED));
        pool.install(|| opened.write(&out, &|_| Ok(()))).unwrap();
        assert!(std::fs::read(out.join("model.safetensors")).unwrap() == expected);
        for name in COMPANIONS {
            let read = |dir: &Path| std::fs::read(dir.join(name)).unwrap();
            assert_eq!(read(&out), read(deltas.path()), "{name}");
        }
        assert_eq!(out.read_dir().unwrap().count(), COMPANIONS.len() + 1);
        Checkpoint::open(&out).unwrap();
    }
}

#[test]
fn another_sum_or_an_interruption_leaves_nothing() {
    let config = small();
    let dir = folder(&config, &entries(&config), 1, &"0".repeat(64));
    let deltas = Deltas::open(dir.path()).unwrap();
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("model");
    let message = deltas.write(&out, &|_| Ok(())).unwrap_err().to_string();
    assert!(message.contains("model/model.safetensors: sha256 "), "{message}");
    assert!(message.contains("standin.json says 000000"), "{message}");
    let stop = |_| Err(ErrorKind::Interrupted.into());
    deltas.write(&out, &stop).unwrap_err();
    assert_eq!(parent.path().read_dir().unwrap().count(), 0);
}

#[test]
fn every_tensor_is_checked_by_name() {
    let config = small();
    let good = entries(&config);
    for at in 0..good.len() {
        let with = |change: &dyn Fn(&mut Entry)| {
            let mut entries = good.clone();
            change(&mut entries[at]);
            folder(&config, &entries, 1, &"0".repeat(64))
        };
        let name = good[at].0.as_str();
        refused(with(&|entry| entry.0 += "x").path(), &[name, "missing"]);
        let size = |dtype: Dtype| dtype.bitsize() / 8;
        let typed = |entry: &mut Entry| {
            entry.1 = if size(entry.1) == 1 { Dtype::U8 } else { Dtype::I32 };
            entry.3.resize(entry.2.iter().product::<usize>() * size(entry.1), 0);
        };
        refused(with(&typed).path(), &[name, "dtype", "expected"]);
        let longer = |entry: &mut Entry| {
            *entry.2.last_mut().unwrap() += 1;
            entry.3.resize(entry.2.iter().product::<usize>() * size(entry.1), 0);
        };
        refused(with(&longer).path(), &[name, "shape", "config.json asks for"]);
        let flat = |entry: &mut Entry| entry.2.push(1);
        refused(with(&flat).path(), &[name, "shape"]);
        for value in [f32::NAN, f32::INFINITY] {
            let damaged = |entry: &mut Entry| match entry.1 {
                Dtype::F32 => entry.3[..4].copy_from_slice(&value.to_le_bytes()),
                Dtype::BF16 => entry.3[..2].copy_from_slice(&value.to_le_bytes()[2..]),
                _ => {}
            };
            if good[at].1 != Dtype::I8 {
                refused(with(&damaged).path(), &[name, "element 0 is"]);
            }
        }
    }
}

#[test]
fn ranks_rows_and_names_that_do_not_fit_are_refused() {
    let config = small();
    let with = |name: &str, rows: usize| {
        let mut entries = entries(&config);
        for (end, cols) in [("", 48), ("_scale", 1)] {
            let at = entries.iter().position(|entry| entry.0 == format!("{name}{end}")).unwrap();
            let (_, dtype, shape, bytes) = &mut entries[at];
            shape[0] = rows;
            bytes.resize(rows * cols * dtype.bitsize() / 8, 0);
        }
        folder(&config, &entries, 1, &"0".repeat(64))
    };
    let projection = "model.layers.1.self_attn.k_proj.weight";
    let dir = with(&format!("{projection}.a"), RANK + 1);
    refused(dir.path(), &[&format!("{projection}.b"), "of rank 5, its a of 6"]);
    refused(with("model.embed_tokens.weight.rows", 71).path(), &["71 rows, of 70"]);
    Deltas::open(with("model.embed_tokens.weight.rows", 70).path()).unwrap();

    let mut more = entries(&config);
    more.push(("model.layers.2.input_layernorm.weight".into(), Dtype::BF16, vec![1], vec![0; 2]));
    let dir = folder(&config, &more, 2, &"0".repeat(64));
    refused(
        dir.path(),
        &["deltas-00002-of-00002", "model.layers.2.input", "no delta of the model"],
    );
    let twice = dir.path().join("deltas-00003-of-00002.safetensors");
    std::fs::copy(dir.path().join("deltas-00001-of-00002.safetensors"), twice).unwrap();
    refused(dir.path(), &["deltas-00003", "deltas-00001", "too"]);
}

#[test]
fn files_that_are_missing_or_damaged_are_named() {
    let config = small();
    let good = || folder(&config, &entries(&config), 2, &"0".repeat(64));
    for name in COMPANIONS.into_iter().chain(["standin.json"]) {
        let dir = good();
        std::fs::remove_file(dir.path().join(name)).unwrap();
        refused(dir.path(), &[name]);
    }
    let deltas = |at: usize| format!("deltas-0000{at}-of-00002.safetensors");
    let dir = good();
    let bytes = std::fs::read(dir.path().join(deltas(2))).unwrap();
    std::fs::write(dir.path().join(deltas(2)), &bytes[..bytes.len() - 1]).unwrap();
    refused(dir.path(), &[&deltas(2)]);
    std::fs::remove_file(dir.path().join(deltas(2))).unwrap();
    refused(dir.path(), &["missing"]);
    std::fs::remove_file(dir.path().join(deltas(1))).unwrap();
    refused(dir.path(), &["deltas-*.safetensors", "no such file"]);

    for (text, word) in [
        ("{}", "base_seed"),
        (r#"{"base_seed": 0}"#, "model_sha256"),
        (r#"{"base_seed": -1, "model_sha256": ""}"#, "-1"),
        (r#"{"base_seed": 0, "model_sha256": "xyz"}"#, "xyz"),
        ("no", "standin.json"),
    ] {
        let dir = good();
        std::fs::write(dir.path().join("standin.json"), text).unwrap();
        refused(dir.path(), &["standin.json", word]);
    }
    let dir = folder(&Config { tied: false, ..small() }, &entries(&config), 1, "");
    refused(dir.path(), &["config.json", "tie_word_embeddings"]);
    let wide = Config { hidden: 64, ..small() };
    let dir = folder(&wide, &entries(&config), 1, &"0".repeat(64));
    refused(dir.path(), &["model.embed_tokens.weight.offset", "[48]", "[64]"]);
}

#[test]
fn a_value_that_overflows_is_named() {
    let config = small();
    let mut entries = entries(&config);
    let name = "model.layers.0.mlp.up_proj.weight";
    for entry in entries.iter_mut().filter(|entry| entry.0 == format!("{name}.scale")) {
        entry.3 = f32::MAX.to_le_bytes().to_vec();
    }
    for entry in entries.iter_mut().filter(|entry| entry.0 == format!("{name}.b_scale")) {
        entry.3 = f32::MAX.to_le_bytes().repeat(RANK);
    }
    let dir = folder(&config, &entries, 1, &"0".repeat(64));
    let out = tempfile::tempdir().unwrap();
    let written = Deltas::open(dir.path()).unwrap().write(&out.path().join("m"), &|_| Ok(()));
    let message = written.unwrap_err().to_string();
    assert!(message.contains(name) && message.contains("not finite"), "{message}");
}

/// Rows of the shipped deltas over the full shape; the hash is of the same rows as
/// `tools/train_standin.py` rebuilds them.
#[test]
fn the_shipped_deltas_give_the_rows_that_python_gives() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/standin");
    let deltas = Deltas::open(&dir).unwrap();
    let config = deltas.config();
    let published = Config::qwen3_0_6b();
    assert_eq!(config, &Config { eos_ids: config.eos_ids.clone(), ..published });
    let mut hasher = Sha256::new();
    for (tensor, begin) in golden_rows() {
        let values = Values::new(config, deltas.seed(), tensor);
        let rows = begin..(begin + 3).min(tensor.shape(config).0);
        let mut bytes = vec![0; 2 * values.cols * rows.len()];
        assert!(deltas.change(tensor).rows(&values, rows, &mut bytes));
        hasher.update(&bytes);
    }
    let found: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(found, "a36159dcb5cdf5f3f3c2989738a04a707384070b4925fd9fa7c270db56bda364");
}

fn golden_rows() -> Vec<(Tensor, usize)> {
    let layer = |layer, tensor| Tensor::Layer(layer, tensor);
    let mut rows = vec![
        (Tensor::Embedding, 0),
        (Tensor::Embedding, 4094), // the last two that tokens use, and one that none does
        (Tensor::Embedding, 151_933),
        (Tensor::FinalNorm, 0),
    ];
    rows.extend(LayerTensor::ALL.map(|tensor| (layer(0, tensor), 0)));
    rows.extend(LayerTensor::ALL.map(|tensor| (layer(27, tensor), 0)));
    rows.push((layer(13, LayerTensor::GateProj), 3069));
    rows
}
