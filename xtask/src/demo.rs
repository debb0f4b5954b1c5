//! From a bare checkout to readable text, an X-ray and a page.

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::node::Node;
use crate::repo::{Repo, read};
use crate::{command, page, page_data, say};

/// What to decode and where to show it.
#[derive(clap::Args)]
pub struct Options {
    /// Decode, write the trace and exit; needs no Node.
    #[arg(long)]
    once: bool,
    /// The text to continue [default: data/tiny/demo-prompt.txt]
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Number of tokens to decode.
    #[arg(short = 'n', value_name = "N", default_value_t = 96)]
    tokens: u32,
    /// The page's port on the loopback address [default: any free port]
    #[arg(long, value_name = "P")]
    port: Option<u16>,
}

const SERVER_START_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// Decodes, and serves the page unless `--once` is given.
pub fn run(repo: &Repo, options: &Options) -> Result<()> {
    let trace = decode(repo, options)?;
    say::line(format_args!("X-ray of one token: {}", trace.display()));
    if options.once {
        return Ok(());
    }
    let node = Node::ensure(repo)?;
    say::heading("the page");
    page::install(repo, &node)?;
    // The page's build copies all of web/public.
    page_data::fill(repo, Some(&trace))?;
    page::build(repo, &node)?;
    serve(repo, &node, free_port(options.port)?)
}

/// Streams the text to the terminal and returns the trace's path.
fn decode(repo: &Repo, options: &Options) -> Result<PathBuf> {
    let model = repo.root.join("data/tiny");
    let prompt = match &options.prompt {
        Some(prompt) => prompt.clone(),
        None => read(&model.join("demo-prompt.txt"))?.trim_end().to_owned(),
    };
    let trace = repo.target.join("demo/trace.json.gz");
    clear(&trace)?;
    say::heading("building the decoder: about four minutes the first time");
    command::run(repo.cargo().args(["build", "--release", "--package", "monolith"]))?;
    say::heading("decoding");
    let mut monolith = Command::new(repo.target.join("release/monolith"));
    monolith.args(["run", "--model", "data/tiny", "-p", &prompt]).current_dir(&repo.root);
    command::run(monolith.args(["-n", &options.tokens.to_string(), "--xray"]).arg(&trace))?;
    if !trace.metadata().is_ok_and(|file| file.len() > 0) {
        bail!("the decoder wrote no trace to {}", trace.display());
    }
    Ok(trace)
}

/// Removes an old trace, so that it cannot pass for the new one.
fn clear(trace: &Path) -> Result<()> {
    if let Some(folder) = trace.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("could not create {}", folder.display()))?;
    }
    match std::fs::remove_file(trace) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("could not remove {}", trace.display()))
        }
        _ => Ok(()),
    }
}

/// Serves web/dist until interrupted.
fn serve(repo: &Repo, node: &Node, port: u16) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("could not listen for Ctrl-C")?;
    }
    let mut vite = node.node(repo);
    // Run Vite itself, not npx, because the process started here is the one to stop.
    vite.args(["node_modules/vite/bin/vite.js", "preview", "--host", "127.0.0.1"]);
    let mut server = Server::start(vite.args(["--strictPort", "--port", &port.to_string()]))?;
    let begun = Instant::now();
    while !answers(port) {
        server.check()?;
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        if begun.elapsed() > SERVER_START_MAX {
            bail!("the page did not answer on port {port} in {SERVER_START_MAX:?}");
        }
        std::thread::sleep(POLL);
    }
    say::line(format_args!("\nopen http://127.0.0.1:{port}/ (Ctrl-C stops it)"));
    while !stop.load(Ordering::Relaxed) {
        server.check()?;
        std::thread::sleep(POLL);
    }
    say::line("stopped");
    Ok(())
}

/// A child process that is killed when this value is dropped.
struct Server(Child);

impl Server {
    fn start(command: &mut Command) -> Result<Server> {
        let shown = command::shown(command);
        say::line(format_args!("$ {shown}"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        child.map(Server).with_context(|| format!("could not start `{shown}`"))
    }

    /// Fails if the child has ended.
    fn check(&mut self) -> Result<()> {
        match self.0.try_wait().context("could not check on the server")? {
            None => Ok(()),
            Some(status) => bail!("the server ended ({status}); is its port taken?"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The given port if it is free, or any free port if none is given.
fn free_port(port: Option<u16>) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0)))
        .with_context(|| format!("port {} is taken: choose another", port.unwrap_or(0)))?;
    Ok(listener.local_addr().context("the port has no number")?.port())
}

/// Whether a page is served at this port.
fn answers(port: u16) -> bool {
    let get = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok(status.ends_with(b" 200"))
    };
    get().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_that_is_there_answers() {
        assert!(!answers(free_port(None).unwrap()));
        for (status, expected) in [("200 OK", true), ("404 Not Found", false)] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = std::thread::spawn(move || {
                // Another test may look for a free port and find this one: it asks for nothing.
                let asks = |stream: &mut TcpStream| stream.read(&mut [0; 512]).is_ok_and(|n| n > 0);
                let mut streams = listener.incoming().map(Result::unwrap);
                let mut stream = streams.by_ref().find_map(|mut s| asks(&mut s).then_some(s));
                let stream = stream.as_mut().unwrap();
                write!(stream, "HTTP/1.1 {status}\r\n\r\n").unwrap();
            });
            assert_eq!(answers(port), expected, "{status}");
            server.join().unwrap();
        }
    }

    #[test]
    fn a_port_that_is_taken_is_refused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = free_port(Some(port)).unwrap_err().to_string();
        assert_eq!(error, format!("port {port} is taken: choose another"));
    }

    #[test]
    fn the_server_does_not_outlive_us() {
        let mut server = Server::start(Command::new("sleep").arg("600")).unwrap();
        server.check().unwrap();
        let process = PathBuf::from(format!("/proc/{}", server.0.id()));
        let was_there = process.exists();
        drop(server);
        assert!(!process.exists());
        assert_eq!(was_there, cfg!(target_os = "linux"));
    }

    #[test]
    fn a_server_that_ends_is_noticed() {
        let mut server = Server::start(&mut Command::new("false")).unwrap();
        let mut server = command::in_time(move || {
            server.0.wait().unwrap();
            server
        });
        assert!(server.check().unwrap_err().to_string().contains("the server ended"));
    }

    #[test]
    fn an_old_trace_is_never_taken_for_ours() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("demo/trace.json.gz");
        clear(&trace).unwrap();
        std::fs::write(&trace, "old").unwrap();
        clear(&trace).unwrap();
        assert!(!trace.exists());
    }
}
