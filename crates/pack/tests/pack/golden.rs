//! Whole packs by their sha256: a change of the code that writes them must not change a byte.

use crate::support::{config, ordinary, packed, small, source};
use monolith_pack::{Formats, Recipe, ScaleSearch};
use sha2::{Digest, Sha256};

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_bytes_are_those_of_layout_version_2() {
    let mut found = Vec::new();
    for formats in Formats::NAMED {
        for tied in [true, false] {
            let dims = [40, 36, 2, 1, 2, 4, 37];
            let bytes = packed(&ordinary(&config(dims, tied), 5), formats);
            found.push(digest(&bytes));
        }
    }
    let mse = Recipe::new(source(), Formats::FP8).scale_search(ScaleSearch::Mse);
    found.push(digest(&mse.to_bytes(&ordinary(&small(), 7)).unwrap()));
    let wanted = [
        "ea2a1eddde1e0324e8f037c40b3adb857853cec91bc5fec4a2fd2b5b2ceaecad",
        "a98ea66aae4adabdbaeeea04794f9928013b4d5604ae154df4616ce849e7440f",
        "da0234daf915149f5e190c445e3d203ce3a257d34493c2675ee7c52bcedc1134",
        "71a5f72d22c05e0b6abd66aeae9f639220fd846baf7f1c5671f8f9202024c92b",
        "37952dd5301ac3cbbc140eb5bde7de04001861a63f4eeb382b93e1d8bd3c6ee2",
        "5731d125133731a0b34f83924a85b9d94d9947bdd49081ac27ec8a0424a52774",
        "6aa3a5bcbccc50f06bb2d9a84d1fdd5c0e88010e71fd8b92a8d2c464b34efa1c",
    ];
    assert_eq!(found, wanted);
}
