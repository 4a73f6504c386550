//! A network that fails on demand, between a node and its server. It runs on a thread of its own, so that it goes on
//! while a test blocks. Invariant: bytes are forwarded unchanged and in order until a fault is asked for.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use crate::eventually;

/// A TCP proxy with faults.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    target: SocketAddr,
    shared: Arc<Shared>,
    /// Ends the thread when dropped.
    _alive: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Counts the cuts; a connection that sees it change resets itself.
    cuts: watch::Sender<u64>,
}

#[derive(Debug, Clone)]
struct State {
    fault: Fault,
    delay: Duration,
    /// Counts the black holes: who is older than the last one fell into it, whether it said anything meanwhile or not.
    holes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Fault {
    None,
    Cut,
    BlackHole,
    /// The next COMMIT of a transaction that sent `marker` is lost, or only its answer is.
    AtCommit {
        marker: String,
        reaches_server: bool,
    },
}

impl Proxy {
    /// Listens on a loopback port and forwards to `target`, see `Server::address`.
    pub async fn start(target: SocketAddr) -> Self {
        let state = Mutex::new(State { fault: Fault::None, delay: Duration::ZERO, holes: 0 });
        let shared = Arc::new(Shared { state, cuts: watch::Sender::new(0) });
        let (alive, ended) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let inside = Arc::clone(&shared);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be built").block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback interface has a free port");
                let _ = tell.send(listener.local_addr().expect("a bound listener has an address"));
                tokio::select! {
                    () = accept(listener, target, inside) => {}
                    _ = ended => {}
                }
            });
        });
        let address = told.await.expect("the proxy's thread starts");
        Self { address, target, shared, _alive: alive }
    }

    /// The proxy's own address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same URL, through the proxy.
    pub fn url(&self, url: &str) -> String {
        let target = self.target.to_string();
        assert!(url.contains(&target), "{url} does not lead to {target}");
        url.replacen(&target, &self.address.to_string(), 1)
    }

    /// Resets every connection, and every new one at once.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Ends any fault and delay. Connections that were cut stay cut; those in a black hole are reset.
    pub fn restore(&self) {
        let swallowed = {
            let mut state = self.shared.state();
            state.delay = Duration::ZERO;
            std::mem::replace(&mut state.fault, Fault::None) == Fault::BlackHole
        };
        if swallowed {
            self.shared.reset_all();
        }
    }

    /// Ends a black hole for new connections only: those that fell into it stay silent for ever, as when a firewall
    /// has forgotten them.
    pub fn restore_for_new(&self) {
        self.shared.state().fault = Fault::None;
    }

    /// Holds everything back by `delay`, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// Accepts, swallows, never answers: a host that went away without a word.
    pub fn black_hole(&self) {
        let mut state = self.shared.state();
        state.fault = Fault::BlackHole;
        state.holes += 1;
    }

    /// Lets the next COMMIT reach the server and cuts before its answer reaches the node: committed, and nobody knows.
    pub fn cut_after_commit(&self) {
        self.cut_after_commit_of("");
    }

    /// Like `cut_after_commit`, for the first transaction that sent `marker` in a message (part of a statement, say).
    pub fn cut_after_commit_of(&self, marker: &str) {
        self.shared.state().fault = Fault::AtCommit { marker: marker.to_owned(), reaches_server: true };
    }

    /// Cuts instead of forwarding the COMMIT of the first transaction that sent `marker`: rolled back, nobody knows.
    pub fn cut_before_commit_of(&self, marker: &str) {
        self.shared.state().fault = Fault::AtCommit { marker: marker.to_owned(), reaches_server: false };
    }

    /// Whether the network is cut, by `cut` or at a commit.
    pub fn is_cut(&self) -> bool {
        self.shared.state().fault == Fault::Cut
    }

    /// Waits until a cut at a commit has happened.
    pub async fn wait_until_cut(&self, timeout: Duration) {
        eventually(timeout, || async { self.is_cut() }).await;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }

    fn cut(&self) {
        self.state().fault = Fault::Cut;
        self.reset_all();
    }

    fn reset_all(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        // Subscribed before the state is looked at: a cut in between is seen by one or the other.
        let cuts = shared.cuts.subscribe();
        if shared.state().fault == Fault::Cut {
            let _ = client.set_zero_linger();
            continue;
        }
        tokio::spawn(serve(client, target, Arc::clone(&shared), cuts));
    }
}

/// One connection. When it ends, for whatever reason, both sides are closed; after a cut with a reset.
async fn serve(client: TcpStream, target: SocketAddr, shared: Arc<Shared>, mut cuts: watch::Receiver<u64>) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    let committed = AtomicBool::new(false);
    let silence = Silence { born: shared.state().holes, fallen: AtomicBool::new(false) };
    let mut up = Upstream {
        shared: &shared,
        framer: Framer::default(),
        marked: false,
        committed: &committed,
        silence: &silence,
    };
    let mut pair = (client_out, server_out);
    let cut = tokio::select! {
        () = up.pump(client_in, &mut pair.1) => false,
        () = pump_down(server_in, &mut pair.0, &shared, &committed, &silence) => false,
        _ = cuts.changed() => true,
    };
    if cut {
        // The halves share one socket; a drop now resets it.
        let _ = (pair.0.as_ref().set_zero_linger(), pair.1.as_ref().set_zero_linger());
    }
}

/// From the node to the server, message by message, on the watch for the COMMIT to fail.
struct Upstream<'a> {
    shared: &'a Shared,
    framer: Framer,
    marked: bool,
    committed: &'a AtomicBool,
    silence: &'a Silence,
}

/// Whether a connection has fallen into a black hole, from which none returns.
struct Silence {
    born: u64,
    fallen: AtomicBool,
}

impl Silence {
    fn swallows(&self, state: &State) -> bool {
        if state.fault == Fault::BlackHole || state.holes != self.born {
            self.fallen.store(true, Ordering::Relaxed);
        }
        self.fallen.load(Ordering::Relaxed)
    }
}

impl Upstream<'_> {
    async fn pump(&mut self, mut from: OwnedReadHalf, to: &mut OwnedWriteHalf) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let state = self.shared.state().clone();
            tokio::time::sleep(state.delay).await;
            for message in self.framer.push(&buffer[..count]) {
                if !self.silence.swallows(&state) && !self.forward(&message, &state.fault, to).await {
                    return;
                }
            }
        }
    }

    async fn forward(&mut self, message: &[u8], fault: &Fault, to: &mut OwnedWriteHalf) -> bool {
        match fault {
            Fault::AtCommit { marker, reaches_server } => {
                self.marked |= contains(message, marker.as_bytes());
                let commit = contains(message, b"COMMIT");
                if commit && self.marked && !reaches_server {
                    self.shared.cut();
                    return false;
                }
                if commit && self.marked {
                    self.committed.store(true, Ordering::Relaxed);
                }
                if commit || contains(message, b"ROLLBACK") {
                    self.marked = false;
                }
            }
            Fault::None | Fault::Cut | Fault::BlackHole => self.marked = false,
        }
        to.write_all(message).await.is_ok()
    }
}

async fn pump_down(
    mut from: OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    shared: &Shared,
    committed: &AtomicBool,
    silence: &Silence,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if committed.load(Ordering::Relaxed) {
            // This is the answer: the server has committed.
            shared.cut();
            return std::future::pending().await;
        }
        let state = shared.state().clone();
        tokio::time::sleep(state.delay).await;
        if silence.swallows(&state) {
            continue;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    let state = shared.state().clone();
    if silence.swallows(&state) {
        // Not even the server's goodbye gets through.
        std::future::pending().await
    }
}

/// Cuts the node's bytes into protocol messages: first the untyped ones of the start, then one type byte and a length.
#[derive(Debug, Default)]
struct Framer {
    pending: Vec<u8>,
    started: bool,
}

impl Framer {
    fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        const SSL_REQUEST: u32 = 80_877_103;
        const GSS_REQUEST: u32 = 80_877_104;
        self.pending.extend_from_slice(bytes);
        let mut messages = Vec::new();
        loop {
            let offset = usize::from(self.started);
            let Some(length) = number_at(&self.pending, offset) else { break };
            let end = offset + usize::try_from(length).unwrap_or(usize::MAX - 1).max(4);
            if self.pending.len() < end {
                break;
            }
            if !self.started {
                let code = number_at(&self.pending, 4);
                self.started = !matches!(code, Some(SSL_REQUEST | GSS_REQUEST));
            }
            messages.push(self.pending.drain(..end).collect());
        }
        messages
    }
}

fn number_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let four = bytes.get(offset..offset + 4)?;
    Some(u32::from_be_bytes(four.try_into().expect("the slice has four bytes")))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}
