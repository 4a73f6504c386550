//! Traces over OTLP, in builds with the feature `otel`: every batch is a span. Where they go is said by the variables that every
//! OpenTelemetry exporter understands (`OTEL_EXPORTER_OTLP_ENDPOINT` and its kin); without one nothing is sent.
//! Invariant: a collector that is away holds nothing up; spans wait in a queue that drops what does not fit.

#[cfg(feature = "otel")]
pub(crate) use otlp::{end, layer};

/// What names a collector.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

fn wanted() -> bool {
    ENDPOINTS.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Nothing to add; says so where somebody asks for traces.
#[cfg(not(feature = "otel"))]
pub(crate) fn layer() -> Option<tracing_subscriber::layer::Identity> {
    if wanted() {
        eprintln!("this build of ebb exports no traces: build it with --features otel, or unset {}", ENDPOINTS[0]);
    }
    None
}

#[cfg(not(feature = "otel"))]
pub(crate) fn end() {}

#[cfg(feature = "otel")]
mod otlp {
    use std::pin::Pin;
    use std::sync::OnceLock;
    use std::time::Duration;

    use axum::http::{Request, Response};
    use bytes::Bytes;
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_http::{HttpClient, HttpError};
    use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tokio::runtime::Handle;
    use tracing::Subscriber;
    use tracing_subscriber::Layer;
    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::registry::LookupSpan;

    static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();
    /// The last spans are sent within this, or lost.
    const END_WITHIN: Duration = Duration::from_secs(2);

    /// Hands spans to the exporter, where a collector is named.
    pub(crate) fn layer<S>() -> Option<impl Layer<S>>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        if !super::wanted() {
            return None;
        }
        let provider = match provider() {
            Ok(provider) => provider,
            Err(error) => {
                eprintln!("no traces are exported: {error}");
                return None;
            }
        };
        let tracer = provider.tracer("ebb");
        let spans = Targets::new().with_target("ebb::trace", tracing::Level::INFO);
        Some(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(spans))
    }

    fn provider() -> Result<&'static SdkTracerProvider, Box<dyn std::error::Error>> {
        if let Some(provider) = PROVIDER.get() {
            return Ok(provider);
        }
        // A second provider, where there is one, is not needed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client { client: reqwest::Client::new(), runtime: Handle::try_current()? };
        let exporter = SpanExporter::builder().with_http().with_http_client(client).build()?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("ebb");
        }
        let made = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
        Ok(PROVIDER.get_or_init(|| made))
    }

    /// Sends what waits. Called outside of the runtime, which has to be there still.
    pub(crate) fn end() {
        if let Some(provider) = PROVIDER.get() {
            let _ = provider.shutdown_with_timeout(END_WITHIN);
        }
    }

    /// The HTTP client of everything else here. The exporter has a thread of its own, so that the call is made on the runtime.
    #[derive(Debug)]
    struct Client {
        client: reqwest::Client,
        runtime: Handle,
    }

    impl HttpClient for Client {
        fn send_bytes<'a, 'b>(
            &'a self,
            request: Request<Bytes>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
        where
            'a: 'b,
            Self: 'b,
        {
            let (parts, body) = request.into_parts();
            let sent = self.client.request(parts.method, parts.uri.to_string()).headers(parts.headers).body(body);
            let sent = self.runtime.spawn(async move {
                let answer = sent.send().await?;
                let (status, headers) = (answer.status(), answer.headers().clone());
                let mut response = Response::new(answer.bytes().await?);
                (*response.status_mut(), *response.headers_mut()) = (status, headers);
                Ok::<_, reqwest::Error>(response)
            });
            Box::pin(async move { Ok(sent.await??) })
        }
    }
}
