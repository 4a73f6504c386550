//! Style, script and icon. They change with the binary, so that a browser asks again only after an upgrade.

use axum::Router;
use axum::http::header;
use axum::routing::get;

use crate::http::Surface;

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/app.js");
const ICON: &str = include_str!("assets/icon.svg");

pub(super) fn router() -> Router<Surface> {
    let file = |content_type: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-cache")], text) })
    };
    Router::new()
        .route("/assets/style.css", file("text/css; charset=utf-8", STYLE))
        .route("/assets/app.js", file("text/javascript; charset=utf-8", SCRIPT))
        .route("/assets/icon.svg", file("image/svg+xml", ICON))
}
