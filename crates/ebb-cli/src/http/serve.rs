//! The listener: connections, TLS, the end of both. Invariants: a client that is slow, silent or one too many is let
//! go; after the signal no request is begun, those that were are ended.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use ebb::config::{HttpSettings, TlsFiles};
use ebb::spine::Shutdown;
use ebb::{Engine, Error, Result};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::peer::Connected;

/// Connections at a time; the next one waits to be accepted.
const CONNECTIONS: usize = 2_048;
/// Headers, and the TLS handshake before them, take no longer to arrive; nor does a kept connection idle for longer.
const HEADERS_WITHIN: Duration = Duration::from_secs(15);

/// Refuses to be open to others while nobody could be told apart.
pub(crate) async fn may_listen(engine: &Engine, settings: &HttpSettings) -> Result<()> {
    if settings.listen.ip().is_loopback() {
        return Ok(());
    }
    let mut tx = engine.database().read().await?;
    let exists = ebb::token::exists(&mut tx).await?;
    tx.commit().await?;
    if exists {
        return Ok(());
    }
    let listen = settings.listen;
    Err(Error::config(format!("[http] listen = \"{listen}\" is not loopback, and there is no token yet"))
        .with_hint("make one first: ebb token create --role admin; or listen on 127.0.0.1"))
}

/// Binds the listener; port 0 picks a free one.
pub(crate) async fn bind(settings: &HttpSettings) -> Result<TcpListener> {
    let address = settings.listen;
    TcpListener::bind(address).await.map_err(|error| {
        Error::failed(format!("cannot listen on {address}: {error}"))
            .with_hint("another node may be running here; set [http] listen, port 0 picks a free one")
    })
}

/// Certificate and key, when they are configured.
pub(crate) fn acceptor(files: Option<&TlsFiles>) -> Result<Option<TlsAcceptor>> {
    let Some(TlsFiles { cert, key }) = files else { return Ok(None) };
    let wrong = |what: &str, path: &std::path::Path, why: &dyn std::fmt::Display| {
        Error::config(format!("{what} {} cannot be used: {why}", path.display()))
            .with_hint("tls_cert and tls_key are PEM files: the certificate with its chain, and its private key")
    };
    let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| wrong("tls_cert", cert, &error))?;
    if chain.is_empty() {
        return Err(wrong("tls_cert", cert, &"there is no certificate in it"));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong("tls_key", key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
    let mut config = config.map_err(|error| wrong("tls_cert", cert, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

/// Serves until shutdown, then lets what was begun end, but not for longer than `drain`.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    tls: Option<TlsAcceptor>,
    shutdown: Shutdown,
    drain: Duration,
) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = shutdown.stopping() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, address, place)) = accepted else { continue };
        let (app, tls, watcher) = (app.clone(), tls.clone(), graceful.watcher());
        tokio::spawn(async move {
            let connected = Connected { address, tls: tls.is_some() };
            match tls {
                None => converse(stream, app, connected, watcher).await,
                Some(tls) => match tokio::time::timeout(HEADERS_WITHIN, tls.accept(stream)).await {
                    Ok(Ok(stream)) => converse(stream, app, connected, watcher).await,
                    Ok(Err(error)) => tracing::debug!(from = %address, error = %error, "No TLS handshake"),
                    Err(_) => {}
                },
            }
            drop(place);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(drain, graceful.shutdown()).await;
}

type Place = tokio::sync::OwnedSemaphorePermit;

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> Option<(TcpStream, std::net::SocketAddr, Place)> {
    let place = places.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, address)) => {
            let _ = stream.set_nodelay(true);
            Some((stream, address, place))
        }
        Err(error) => {
            // Out of file descriptors, say: it passes when others end.
            tracing::debug!(error = %error, "Could not accept a connection");
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

async fn converse<S>(stream: S, app: Router, connected: Connected, watcher: hyper_util::server::graceful::Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = app.map_request(move |request: Request<Incoming>| {
        let mut request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(connected);
        request
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(from = %connected.address, error = %error, "A connection ended early");
    }
}
