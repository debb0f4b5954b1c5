//! A hub on the loopback interface that injects faults.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A request as it arrived; header names in lower case.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: HashMap<String, String>,
}

impl Request {
    /// The first byte asked for by a `Range` header.
    pub fn range_start(&self) -> Option<usize> {
        self.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// An answer, correct or not.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// Close the connection after this number of bytes of the body.
    pub cut_at: Option<usize>,
    /// Send the body byte by byte, with this pause after each.
    pub pause: Option<Duration>,
}

impl Reply {
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..Self::new(200) }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn cut_at(mut self, bytes: usize) -> Self {
        self.cut_at = Some(bytes);
        self
    }

    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = Some(pause);
        self
    }

    /// `body`, or the rest of it where the request asks for a range.
    pub fn ranged(body: &[u8], request: &Request) -> Self {
        match request.range_start() {
            Some(start) if start >= body.len() => Self::new(416),
            Some(start) => Self { body: body[start..].to_vec(), ..Self::new(206) }
                .header("Content-Range", format!("bytes {start}-{}/{0}", body.len())),
            None => Self::ok(body),
        }
    }
}

/// A server for as long as the test runs.
pub struct Server {
    pub url: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

/// What a request arrives on and its answer leaves by.
pub trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

impl Server {
    /// Answers every request by `answer`, which is also told how many came before it.
    pub fn start(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_over("http", "127.0.0.1", |stream| Some(Box::new(stream)), answer)
    }

    /// The same for connections that `open` makes streams of; none is one that failed.
    pub fn start_over(
        scheme: &str,
        host: &str,
        open: impl Fn(TcpStream) -> Option<Box<dyn Stream>> + Send + Sync + 'static,
        answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://{host}:{}", listener.local_addr().unwrap().port());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, answer, open) = (Arc::clone(&seen), Arc::new(answer), Arc::new(open));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (log, answer, open) =
                    (Arc::clone(&log), Arc::clone(&answer), Arc::clone(&open));
                thread::spawn(move || {
                    if let Some(mut stream) = open(stream) {
                        serve(&mut *stream, &log, &*answer);
                    }
                });
            }
        });
        Self { url, seen }
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// How many requests so far were by `method` to a path with `part` in it.
    pub fn count(&self, method: &str, part: &str) -> usize {
        self.requests().iter().filter(|r| r.method == method && r.path.contains(part)).count()
    }
}

fn serve(
    stream: &mut dyn Stream,
    log: &Mutex<Vec<Request>>,
    answer: &dyn Fn(&Request, usize) -> Reply,
) {
    let Some(request) = read_request(stream) else { return };
    let earlier = {
        let mut log = log.lock().unwrap();
        log.push(request.clone());
        log.len() - 1
    };
    let reply = answer(&request, earlier);
    let mut head = format!("HTTP/1.1 {} Test\r\nConnection: close\r\n", reply.status);
    if !reply.headers.iter().any(|(name, _)| *name == "Content-Length") {
        head += &format!("Content-Length: {}\r\n", reply.body.len());
    }
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    let sent = reply.cut_at.unwrap_or(usize::MAX).min(reply.body.len());
    // A client that has heard enough may hang up.
    let _ = stream.write_all(head.as_bytes());
    if request.method != "HEAD" {
        send(stream, &reply.body[..sent], reply.pause);
    }
    let _ = stream.flush();
}

fn send(stream: &mut dyn Stream, body: &[u8], pause: Option<Duration>) {
    let Some(pause) = pause else {
        let _ = stream.write_all(body);
        return;
    };
    for byte in body {
        // Until the client has heard enough.
        if stream.write_all(&[*byte]).and_then(|()| stream.flush()).is_err() {
            return;
        }
        thread::sleep(pause);
    }
}

fn read_request(stream: &mut dyn Stream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next()?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let headers = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        })
        .collect();
    Some(Request { method, path, headers })
}
