//! The task that asks etcd: one connection for questions, one for the watch. Both end with their session.

use super::super::blocking::Blocking;
use super::{ANSWER_BYTES_MAX, Answer, Ask, Call, Change, EtcdSite, Told, Trouble, json};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A server that has not answered by then is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);
/// A watch says nothing for hours; a server that is gone is found out by the kernel after four of these.
const KEEPALIVE: Duration = Duration::from_secs(2);
/// Questions and answers on their way. The machine has three questions at most.
const QUEUE_MAX: usize = 64;
/// Threads that ask for the addresses of a server's name. One may take many times as long as an answer.
const RESOLVING_THREADS_MAX: usize = 4;
/// Whoever cannot reach the leader of its etcd knows only what was; it shall say so.
const REQUIRE_LEADER: &str = "Grpc-Metadata-Hasleader";

/// What the control plane holds of the task.
#[derive(Debug)]
pub(crate) struct Wire {
    asks: mpsc::Sender<Ask>,
    told: mpsc::Receiver<Told>,
    task: Option<Task>,
}

impl Wire {
    pub(crate) fn new(site: EtcdSite) -> Self {
        let (asks, asked) = mpsc::channel(QUEUE_MAX);
        let (tell, told) = mpsc::channel(QUEUE_MAX);
        let resolving = Blocking::new(RESOLVING_THREADS_MAX);
        let task =
            Task { prefix: site.prefix(), site, asked, tell, session: 0, line: None, watch: None, resolving };
        Self { asks, told, task: Some(task) }
    }

    /// Takes a question to the task. Call inside the runtime. `Err`: the answer if there is no room for it.
    pub(crate) fn ask(&mut self, ask: Ask) -> Result<(), Told> {
        if let Some(task) = self.task.take() {
            tokio::spawn(task.run());
        }
        let number = ask.number;
        let lost = |_| Told { number, answer: Err(failed("there are too many questions")) };
        self.asks.try_send(ask).map_err(lost)
    }

    /// Where answers come from.
    #[cfg(test)]
    pub(crate) fn teller(&self) -> mpsc::Sender<Told> {
        self.task.as_ref().expect("it has not been asked yet").tell.clone()
    }

    /// The next answer that has come.
    pub(crate) fn told_by_now(&mut self) -> Option<Told> {
        self.told.try_recv().ok()
    }

    /// The next answer; never, if there is nobody to ask.
    pub(crate) async fn told(wire: &mut Option<Self>) -> Option<Told> {
        match wire {
            Some(wire) => wire.told.recv().await,
            None => std::future::pending().await,
        }
    }
}

type Line = SendRequest<Full<Bytes>>;

#[derive(Debug)]
struct Task {
    site: EtcdSite,
    prefix: String,
    asked: mpsc::Receiver<Ask>,
    tell: mpsc::Sender<Told>,
    session: u64,
    line: Option<Line>,
    watch: Option<JoinHandle<()>>,
    resolving: Blocking,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.end_watch();
    }
}

impl Task {
    async fn run(mut self) {
        while let Some(ask) = self.asked.recv().await {
            if self.session != ask.session {
                self.session = ask.session;
                self.line = None;
                self.end_watch();
            }
            let server = self.site.endpoints()[ask.endpoint].clone();
            if let Call::Watch { .. } = &ask.call {
                self.end_watch();
                let watch =
                    watch(self.resolving.clone(), server, self.prefix.clone(), ask, self.tell.clone());
                self.watch = Some(tokio::spawn(watch));
                continue;
            }
            let answer = match timeout(ANSWER_TIMEOUT, self.answer(&server, &ask.call)).await {
                Ok(answer) => answer,
                Err(_) => Err(failed("no answer in time")),
            };
            if answer.is_err() {
                self.line = None;
            }
            let told = Told { number: ask.number, answer };
            if self.tell.send(told).await.is_err() {
                return;
            }
        }
    }

    fn end_watch(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.abort();
        }
    }

    async fn answer(&mut self, server: &str, call: &Call) -> Result<Answer, Trouble> {
        let mut line = match self.line.take().filter(|line| !line.is_closed()) {
            Some(line) => line,
            None => connect(&self.resolving, server).await?,
        };
        let (status, mut body) = send(&mut line, server, call, &self.prefix).await?;
        let mut bytes = Vec::new();
        while let Some(part) = next_part(&mut body).await? {
            if bytes.len() + part.len() > ANSWER_BYTES_MAX {
                return Err(too_long());
            }
            bytes.extend_from_slice(&part);
        }
        self.line = Some(line);
        json::answer(call, &self.prefix, status, &bytes)
    }
}

fn failed(why: impl Into<String>) -> Trouble {
    Trouble::Failed(why.into())
}

fn too_long() -> Trouble {
    failed(format!("its answer is longer than {ANSWER_BYTES_MAX} bytes"))
}

fn broken(error: impl std::error::Error) -> Trouble {
    failed(match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    })
}

/// Where a server listens. (tokio would ask on a thread of its own, see [`Blocking`].)
async fn addresses(resolving: &Blocking, server: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(addr) = server.parse() {
        return Ok(vec![addr]);
    }
    let server = server.to_owned();
    resolving.run(move || server.to_socket_addrs().map(Iterator::collect)).await?
}

async fn connect(resolving: &Blocking, server: &str) -> Result<Line, Trouble> {
    let addresses = addresses(resolving, server).await.map_err(broken)?;
    let stream = TcpStream::connect(&addresses[..]).await.map_err(broken)?;
    let prepare = || -> io::Result<()> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE)?;
        sockopt::set_tcp_keepcnt(&stream, 3)?;
        Ok(())
    };
    prepare().map_err(broken)?;
    let (line, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // It ends when the line is dropped; how it ended is told to whoever waits for an answer.
    tokio::spawn(async { drop(connection.await) });
    Ok(line)
}

async fn send(line: &mut Line, server: &str, call: &Call, prefix: &str) -> Result<(u16, Incoming), Trouble> {
    let (path, body) = json::question(call, prefix);
    let request = Request::post(path)
        .header(HOST, server)
        .header(CONTENT_TYPE, "application/json")
        .header(REQUIRE_LEADER, "true")
        .body(Full::new(Bytes::from(body)))
        .map_err(broken)?;
    line.ready().await.map_err(broken)?;
    let answer = line.send_request(request).await.map_err(broken)?;
    Ok((answer.status().as_u16(), answer.into_body()))
}

async fn next_part(body: &mut Incoming) -> Result<Option<Bytes>, Trouble> {
    match body.frame().await {
        None => Ok(None),
        Some(frame) => Ok(Some(frame.map_err(broken)?.into_data().unwrap_or_default())),
    }
}

/// A watch until it breaks.
async fn watch(resolving: Blocking, server: String, prefix: String, ask: Ask, tell: mpsc::Sender<Told>) {
    let (number, call) = (ask.number, ask.call);
    let began = timeout(ANSWER_TIMEOUT, Lines::begin(&resolving, &server, &call, &prefix)).await;
    let mut lines = match began.unwrap_or_else(|_| Err(failed("no answer in time"))) {
        Ok(lines) => lines,
        // Nobody listens any more once the plane has ended.
        Err(trouble) => return drop(tell.send(Told { number, answer: Err(trouble) }).await),
    };
    let mut answer = Ok(Answer::Watching);
    loop {
        let over = answer.is_err();
        if tell.send(Told { number, answer }).await.is_err() || over {
            return;
        }
        answer = match lines.next(&prefix).await {
            Ok(changes) => Ok(Answer::Changes(changes)),
            Err(trouble) => Err(trouble),
        };
    }
}

/// The answers of a watch, one a line.
struct Lines {
    /// The connection lives as long as this.
    _line: Line,
    body: Incoming,
    bytes: Vec<u8>,
}

impl Lines {
    /// Asks, and waits for the first answer, which says that the watch has begun.
    async fn begin(resolving: &Blocking, server: &str, call: &Call, prefix: &str) -> Result<Self, Trouble> {
        let mut line = connect(resolving, server).await?;
        let (status, body) = send(&mut line, server, call, prefix).await?;
        let mut lines = Self { _line: line, body, bytes: Vec::new() };
        if status != 200 {
            let part = next_part(&mut lines.body).await?.unwrap_or_default();
            return Err(json::refused(status, &part));
        }
        lines.next(prefix).await?;
        Ok(lines)
    }

    async fn next(&mut self, prefix: &str) -> Result<Vec<Change>, Trouble> {
        let mut looked = 0;
        loop {
            if let Some(end) = self.bytes[looked..].iter().position(|&byte| byte == b'\n') {
                let rest = self.bytes.split_off(looked + end + 1);
                let line = std::mem::replace(&mut self.bytes, rest);
                return json::watched(prefix, &line);
            }
            looked = self.bytes.len();
            let Some(part) = next_part(&mut self.body).await? else {
                return Err(failed("it ended the watch"));
            };
            if self.bytes.len() + part.len() > ANSWER_BYTES_MAX {
                return Err(too_long());
            }
            self.bytes.extend_from_slice(&part);
        }
    }
}
