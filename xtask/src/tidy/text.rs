//! Text that must not be committed: other machines' paths, registry hosts, tokens, and what
//! marks unfinished work or a test that does not run.
//!
//! The forbidden texts are written in two halves here, so that this file passes too.

use super::Finding;

/// Absolute paths that mean something on one machine only.
const PATHS: [&str; 3] =
    [concat!("/wo", "rk/"), concat!("/tmp/bash", "_jobs"), concat!("/ro", "ot/")];

/// Hosts that a client must take from its own settings, so that a mirror works.
const HOSTS: [&str; 6] = [
    concat!("registry.npm", "js.org"),
    concat!("pypi", ".org"),
    concat!("static.crates", ".io"),
    concat!("index.crates", ".io"),
    concat!("//crates", ".io"),
    concat!("deb.debian", ".org"),
];

const LOCKS: [&str; 2] = ["Cargo.lock", "package-lock.json"];

const TOKEN: &str = concat!("hf", "_");
const TOKEN_CHARS: usize = 20;

/// By the file's extension: what must not stand in it, and what to do instead.
const UNFINISHED: [(&str, &str, &str); 8] = [
    ("rs", concat!("to", "do!"), "finish it"),
    ("rs", concat!("unimple", "mented!"), "finish it"),
    ("rs", concat!("#[ig", "nore"), "make the test run, or take it out"),
    ("ts", concat!("it.sk", "ip("), "make the test run, or take it out"),
    ("ts", concat!("test.sk", "ip("), "make the test run, or take it out"),
    ("ts", concat!("describe.sk", "ip("), "make the tests run, or take them out"),
    ("ts", concat!("it.on", "ly("), "let the other tests run too"),
    ("ts", concat!("test.on", "ly("), "let the other tests run too"),
];

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit('.').next().unwrap_or("");
    let lock = LOCKS.contains(&name);
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut find = |what: String| found.push(Finding::new(path, index + 1, what));
        for bad in PATHS.iter().filter(|bad| holds_absolute(line, bad)) {
            find(format!("`{bad}` exists on one machine only: use a path from the root"));
        }
        for host in HOSTS.iter().filter(|host| !lock && line.contains(**host)) {
            find(format!("names the host `{host}`: leave it to the client's settings"));
        }
        if holds_token(line) {
            find("looks like an access token: revoke it, and take it out of the history".into());
        }
        for (_, bad, todo) in
            UNFINISHED.iter().filter(|(of, bad, _)| *of == extension && line.contains(bad))
        {
            find(format!("`{bad}`: {todo}"));
        }
    }
    found
}

/// Whether the line holds the path, and not as the tail of a longer one.
fn holds_absolute(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~}/".contains(c))
    })
}

fn holds_token(line: &str) -> bool {
    line.match_indices(TOKEN).any(|(at, _)| {
        let tail = line[at + TOKEN.len()..].chars();
        tail.take_while(char::is_ascii_alphanumeric).count() >= TOKEN_CHARS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every planted violation is found on its line; the harmless second line is not.
    fn planted(path: &str, bad: &str, good: &str) {
        let found = check(path, &format!("first\n{bad}\n{good}\n"));
        let lines: Vec<usize> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2], "{bad} in {path}: {found:?}");
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let [first, second, third] = PATHS;
        planted("notes/a.md", &format!("see `{first}x`"), &format!("web{first}x"));
        planted("a.py", &format!("{second}/1"), "/tmp/bash");
        planted("Dockerfile", &format!("COPY a {third}"), &format!("the tree's{third}x"));
    }

    #[test]
    fn hosts_are_found_outside_lock_files() {
        for host in HOSTS {
            planted("tools/a.sh", &format!("curl https:{host}"), "curl https://example.org");
            assert_eq!(check("web/package-lock.json", host), []);
            assert_eq!(check("Cargo.lock", host), []);
        }
    }

    #[test]
    fn tokens_are_found() {
        let token = format!("{TOKEN}{}", "a1B2".repeat(5));
        planted("README.md", &token, &token[..token.len() - 1]);
    }

    #[test]
    fn unfinished_work_is_found() {
        for (extension, bad, _) in UNFINISHED {
            planted(&format!("a.{extension}"), &format!("  {bad}"), "finished");
            assert_eq!(check("a.md", bad), []);
        }
    }
}
