//! The sink `smtp`: one mail, to all its recipients or to none. Invariant: what a server says about the mail or a
//! recipient is about the event; what it says before that (greeting, TLS, sign-in) is about the sink, and is tried
//! again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lettre::message::Mailbox;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use tokio::time::Instant;

use super::mail::Template;
use super::{Delivery, Response, Sink, Surroundings, Verdict, tls};
use crate::policy::{self, SmtpTls};
use crate::{Error, Result};

/// A connection that nobody used for so long is not trusted any more.
const IDLE: Duration = Duration::from_secs(20);
/// How many connections are kept for the next mail.
const KEPT: usize = 16;

pub(super) struct Smtp {
    host: String,
    port: u16,
    mode: SmtpTls,
    tls: TlsParameters,
    login: Option<Credentials>,
    from: Mailbox,
    template: Template,
    idle: Mutex<Vec<(Instant, AsyncSmtpConnection)>>,
}

impl Smtp {
    pub(super) fn open(smtp: &policy::Smtp, surroundings: &Surroundings) -> Result<Self> {
        let Surroundings { env, base } = surroundings;
        let login = match &smtp.login {
            Some((user, password)) => Some(Credentials::new(user.clone(), password.under(base).resolve(env)?)),
            None => None,
        };
        let of_tls = |error| Error::config(format!("TLS cannot be set up: {error}"));
        let host = smtp.host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let mut parameters = TlsParameters::builder(host.clone());
        if let Some(ca) = &smtp.ca {
            for certificate in tls::authorities(&base.join(ca))? {
                parameters =
                    parameters.add_root_certificate(Certificate::from_der(certificate.to_vec()).map_err(of_tls)?);
            }
        }
        Ok(Self {
            host,
            port: smtp.port,
            mode: smtp.tls,
            tls: parameters.build_rustls().map_err(of_tls)?,
            login,
            from: smtp.from.clone(),
            template: Template::load(smtp.template.as_ref().map(|path| base.join(path)).as_deref())?,
            idle: Mutex::new(Vec::new()),
        })
    }

    async fn send(&self, delivery: &Delivery) -> Verdict {
        let mail = match self.template.mail(delivery, &self.from) {
            Ok(mail) => mail,
            Err(error) => return Verdict::permanent(error),
        };
        let mut connection = match self.connection().await {
            Ok(connection) => connection,
            Err(error) => return failed("the mail server cannot be used", &error, false),
        };
        match connection.send(mail.envelope(), &mail.formatted()).await {
            Ok(answer) => {
                let response = response(answer.code().into(), answer.message().collect());
                self.keep(connection);
                Verdict::Delivered { response: Some(response) }
            }
            Err(error) => {
                connection.abort().await;
                // Characters that this server cannot take are the event's own as well.
                failed("the mail was not accepted", &error, error.is_permanent() || error.is_client())
            }
        }
    }

    /// One that is left from the last mail and still answers, or a new one that is ready for a mail.
    async fn connection(&self) -> Result<AsyncSmtpConnection, lettre::transport::smtp::Error> {
        loop {
            let kept = self.idle().pop();
            let Some((since, mut connection)) = kept else { break };
            if since.elapsed() < IDLE && connection.test_connected().await {
                return Ok(connection);
            }
        }
        let hello = ClientId::default();
        let implicit = (self.mode == SmtpTls::Implicit).then(|| self.tls.clone());
        let server = (self.host.as_str(), self.port);
        let mut connection = AsyncSmtpConnection::connect_tokio1(server, None, &hello, implicit, None).await?;
        if self.mode == SmtpTls::StartTls {
            connection.starttls(self.tls.clone(), &hello).await?;
        }
        if let Some(login) = &self.login {
            connection.auth(DEFAULT_MECHANISMS, login).await?;
        }
        Ok(connection)
    }

    fn keep(&self, connection: AsyncSmtpConnection) {
        let mut idle = self.idle();
        if idle.len() < KEPT && !connection.has_broken() {
            idle.push((Instant::now(), connection));
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(Instant, AsyncSmtpConnection)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Smtp {
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Verdict> {
        self.send(delivery).boxed()
    }

    fn rehearse(&self, delivery: &Delivery) -> Result<(), String> {
        self.template.mail(delivery, &self.from).map(drop)
    }
}

/// What the server said stays in the response: it likes to repeat addresses, which have no place in an error.
fn failed(what: &str, error: &lettre::transport::smtp::Error, permanent: bool) -> Verdict {
    match error.status() {
        Some(code) => Verdict::Failed {
            error: format!("{what}: it answered {code}"),
            permanent,
            retry_after: None,
            response: Some(response(code.into(), error.to_string())),
        },
        None => Verdict::Failed { error: format!("{what}: {error}"), permanent, retry_after: None, response: None },
    }
}

fn response(code: u16, body: String) -> Response {
    Response { status: Some(code), body: body.chars().filter(|c| *c != '\0').take(2_048).collect() }
}
