//! `/docs`: the OpenAPI document for people. Open to everybody, made from the document itself, once.

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use maud::{Markup, html};
use serde_json::Value;

use super::frame;
use crate::http::{Sort, Surface};

pub(super) fn router(document: &utoipa::openapi::OpenApi) -> Router<Surface> {
    let document = serde_json::to_value(document).unwrap_or_default();
    let page: axum::body::Bytes = render(&document).into_string().into();
    Router::new().route(
        "/docs",
        get(move || {
            let page = page.clone();
            async move { Html(page) }
        }),
    )
}

fn render(document: &Value) -> Markup {
    let nothing = serde_json::Map::new();
    let paths = document["paths"].as_object().unwrap_or(&nothing);
    let schemas = document["components"]["schemas"].as_object().unwrap_or(&nothing);
    frame::plain(
        "API",
        html! {
            main {
                div.head { (frame::logo()) span.small { a href="/openapi.json" { "openapi.json" } " · " a href="/" { "Dashboard" } } }
                h1 { "API" }
                p.soft { (document["info"]["description"].as_str().unwrap_or_default()) }
                p.soft { "Send " code { "Authorization: Bearer …" } " with a token of " code { "ebb token create" } "." }
                @for tag in document["tags"].as_array().into_iter().flatten() {
                    @let name = tag["name"].as_str().unwrap_or_default();
                    section.panel {
                        header { h2 { (name) } span.soft.small { (tag["description"].as_str().unwrap_or_default()) } }
                        @for (path, item) in paths {
                            @for (method, operation) in item.as_object().into_iter().flatten().filter(|(_, operation)| operation["tags"][0] == name) { (entry(method, path, operation)) }
                        }
                    }
                }
                section.panel {
                    header { h2 { "Problems" } span.soft.small { "the types of errors, the same in every release" } }
                    div.scroll { table { tbody { @for (kind, status, title) in Sort::ALL.map(Sort::parts) { tr { td.n { (status.as_u16()) } td { code { (kind) } } td { (title) } } } } } }
                }
                section.panel {
                    header { h2 { "Schemas" } }
                    @for (name, schema) in schemas { details id={ "schema-" (name) } { summary { code { (name) } } pre { (serde_json::to_string_pretty(schema).unwrap_or_default()) } } }
                }
            }
        },
    )
}

fn entry(method: &str, path: &str, operation: &Value) -> Markup {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    html! {
        details {
            summary { span.op { span.method { (method.to_uppercase()) } code { (path) } span { (text(&operation["summary"])) } span.badge { (text(&operation["x-ebb-role"])) } } }
            div.pad {
                @if let Some(description) = operation["description"].as_str() { p { (description) } }
                @for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    p.small { code { (text(&parameter["name"])) } span.soft { " in " (text(&parameter["in"])) ": " (text(&parameter["description"])) } }
                }
                @if let Some(content) = operation["requestBody"]["content"].as_object() { @for schema in content.values() { p.small { "Body: " (reference(&schema["schema"])) } } }
                table { tbody { @for (status, response) in operation["responses"].as_object().into_iter().flatten() {
                    tr { td.n { (status) } td { (text(&response["description"])) } td { @for content in response["content"].as_object().into_iter().flatten().map(|(_, content)| content) { (reference(&content["schema"])) } } }
                } } }
            }
        }
    }
}

fn reference(schema: &Value) -> Markup {
    match schema["$ref"].as_str().and_then(|link| link.rsplit('/').next()) {
        Some(name) => html! { a href={ "#schema-" (name) } { code { (name) } } },
        None => html! { code { (schema["type"].as_str().unwrap_or("any")) } },
    }
}
