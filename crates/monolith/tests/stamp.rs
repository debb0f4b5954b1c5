//! The commit that `build.rs` stamps into the program, in small workspaces that are built with it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const WORKSPACE: &str = "[workspace]\nmembers = [\"crates/*\"]\nresolver = \"3\"\n";
const PACKAGE: &str = "[package]\nname = \"monolith\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
const LIBRARY: &str = "[package]\nname = \"below\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
const DEPENDENCY: &str = "[dependencies]\nbelow = { path = \"../below\" }\n";
const MAIN: &str = "fn main() { print!(\"{} {}\", below::NAME, env!(\"MONOLITH_COMMIT\")) }\n";
const WARNING: &str = "the target folder has builds of another checkout";

/// A program, what it says of itself, and what cargo said as it built it.
#[derive(Debug)]
struct Built {
    /// Name of the library that was compiled into it.
    name: String,
    stamp: String,
    is_fresh: bool,
    is_warned: bool,
}

/// A folder with checkouts that share a target folder.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes the sources of a workspace, without git.
    fn sources(&self, checkout: &str) {
        let root = self.path(checkout);
        put(&root.join("Cargo.toml"), WORKSPACE);
        put(&root.join("crates/monolith/Cargo.toml"), &format!("{PACKAGE}{DEPENDENCY}"));
        put(&root.join("crates/monolith/src/main.rs"), MAIN);
        put(&root.join("crates/monolith/build.rs"), include_str!("../build.rs"));
        put(&root.join("crates/below/Cargo.toml"), LIBRARY);
        self.name(checkout, checkout);
        self.run(Command::new(env!("CARGO")).args(["generate-lockfile", "--offline"]), checkout);
    }

    /// Changes the library.
    fn name(&self, checkout: &str, name: &str) {
        let source = self.path(checkout).join("crates/below/src/lib.rs");
        put(&source, &format!("pub const NAME: &str = \"{name}\";\n"));
    }

    fn git(&self, checkout: &str, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=A", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]);
        self.run(git.args(arguments), checkout).0
    }

    /// Commits everything, and returns the commit.
    fn commit(&self, checkout: &str) -> String {
        self.git(checkout, &["add", "--all"]);
        self.git(checkout, &["commit", "--quiet", "--allow-empty", "--message", "Next"]);
        self.git(checkout, &["rev-parse", "HEAD"])
    }

    fn build(&self, checkout: &str) -> Built {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--offline", "--target-dir"]).arg(self.path("target"));
        let (_, said) = self.run(&mut cargo, checkout);
        let (told, _) = self.run(&mut Command::new(self.path("target/debug/monolith")), checkout);
        let (name, stamp) = told.split_once(' ').unwrap();
        Built {
            name: name.into(),
            stamp: stamp.into(),
            is_fresh: !said.contains("Compiling"),
            is_warned: said.contains(WARNING),
        }
    }

    /// Runs a program in a checkout, and returns what it printed and what it said besides.
    fn run(&self, command: &mut Command, checkout: &str) -> (String, String) {
        for name in ["GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
            command.env_remove(name);
        }
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env_remove("CARGO_BUILD_TARGET");
        let output = command.current_dir(self.path(checkout)).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{command:?}: {said}");
        (String::from_utf8(output.stdout).unwrap().trim().to_owned(), said)
    }

    /// Builds a program whose commit is known, and then once more for nothing.
    fn expect(&self, checkout: &str, stamp: &str) {
        let built = self.build(checkout);
        assert_eq!((&*built.stamp, built.is_warned), (stamp, false), "{built:?}");
        let again = self.build(checkout);
        assert_eq!((&*again.stamp, again.is_fresh), (stamp, true), "{again:?}");
    }
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn the_stamp_follows_commits_changes_and_branches() {
    let place = Place::new();
    place.sources("one");
    place.expect("one", "unknown");
    place.git("one", &["init", "--quiet"]);
    let first = place.commit("one");
    // The sources are as they were: the script does not see that they are in a checkout now.
    place.name("one", "one");
    place.expect("one", &first);
    place.name("one", "changed");
    place.expect("one", &format!("{first}-dirty"));
    let second = place.commit("one");
    place.expect("one", &second);
    place.git("one", &["pack-refs", "--all"]);
    place.expect("one", &second);
    let third = place.commit("one");
    place.expect("one", &third);
    place.git("one", &["checkout", "--quiet", "-b", "some/branch"]);
    place.git("one", &["pack-refs", "--all"]);
    place.expect("one", &third);
    let fourth = place.commit("one");
    place.expect("one", &fourth);
    place.git("one", &["checkout", "--quiet", "--detach", "main"]);
    place.expect("one", &third);
    let fifth = place.commit("one");
    place.expect("one", &fifth);
}

#[test]
fn each_checkout_in_one_target_folder_has_its_own_stamp() {
    let place = Place::new();
    place.sources("one");
    place.git("one", &["init", "--quiet"]);
    let one = place.commit("one");
    place.git("one", &["worktree", "add", "--quiet", "-b", "old", "../old"]);
    place.name("old", "old");
    let old = place.commit("old");
    place.expect("one", &one);

    // All its files are newer than that build, so that cargo compiles them.
    place.git("one", &["worktree", "add", "--quiet", "-b", "other", "../other"]);
    place.name("other", "other");
    let other = place.commit("other");
    place.expect("other", &other);
    assert_eq!(place.build("other").name, "other");
    let other = place.commit("other");
    place.expect("other", &other);

    // Its files are older than the builds of the others, and cargo takes those.
    let built = place.build("old");
    assert_eq!(built.stamp, format!("{old}-dirty"));
    assert!(built.is_warned, "{built:?}");
    assert_eq!(place.build("old").stamp, format!("{old}-dirty"));
    fs::remove_dir_all(place.path("target")).unwrap();
    place.expect("old", &old);
    assert_eq!(place.build("old").name, "old");
}
