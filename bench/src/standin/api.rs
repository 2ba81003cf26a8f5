//! The stand-in's API: paths to answers.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::store::{Event, KINDS, Kind, Refusal, Store};

/// What it answers with.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The largest object that it takes: as etcd, 1.5 MiB.
const OBJECT_BYTES_MAX: usize = 3 << 19;

/// A path below `/api` or `/apis`, taken apart.
struct Target<'a> {
    kind: &'static Kind,
    namespace: &'a str,
    name: Option<&'a str>,
}

/// Health and version are answered at once: they say nothing about load.
pub(super) fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz" | "/version")
}

/// Answers one request.
pub(super) async fn answer(request: Request<Incoming>, store: &Store) -> Response<Body> {
    let path = request.uri().path().to_owned();
    match path.as_str() {
        "/healthz" | "/livez" | "/readyz" => return text("ok"),
        "/version" => {
            return object(
                StatusCode::OK,
                &json!({"major": "1", "minor": "36", "gitVersion": "v1.36.2-standin", "platform": "in-process"}),
            );
        }
        "/metrics" => return text(&metrics(store)),
        "/api" => return object(StatusCode::OK, &json!({"kind": "APIVersions", "versions": ["v1"]})),
        "/apis" => return object(StatusCode::OK, &groups()),
        "/api/v1" => return object(StatusCode::OK, &resources("", "v1")),
        "/apis/coordination.k8s.io/v1" => {
            return object(StatusCode::OK, &resources("coordination.k8s.io", "coordination.k8s.io/v1"));
        }
        _ => {}
    }
    let Some(target) = Target::parse(&path) else {
        return failure(StatusCode::NOT_FOUND, "NotFound", "the stand-in has no such path");
    };
    let query = request.uri().query().unwrap_or("").to_owned();
    let tables = request
        .headers()
        .get(http::header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("as=Table"));
    match (request.method().clone(), target.name) {
        (Method::GET, None) if wants_watch(&query) => watch(&target, store),
        (Method::GET, None) => list(&target, store, tables),
        (Method::GET, Some(name)) => match store.get(target.kind, target.namespace, name) {
            Some(found) if tables => object(StatusCode::OK, &table(target.kind, "0", &[found])),
            Some(found) => object(StatusCode::OK, &found),
            None => refused(Refusal::NotFound),
        },
        (Method::DELETE, Some(name)) => {
            answer_write(store.delete(target.kind, target.namespace, name), StatusCode::OK)
        }
        (method @ (Method::POST | Method::PUT | Method::PATCH), name) => {
            let Ok(body) = Limited::new(request.into_body(), OBJECT_BYTES_MAX).collect().await else {
                return failure(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "RequestEntityTooLarge",
                    "the object is too large",
                );
            };
            write(&target, store, &method, name, &body.to_bytes())
        }
        _ => failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "the stand-in does not do that"),
    }
}

impl<'a> Target<'a> {
    /// `/api/v1/...` or `/apis/GROUP/v1/...`; `None` if the stand-in does not serve it.
    fn parse(path: &'a str) -> Option<Self> {
        let mut parts = path.strip_prefix('/')?.split('/');
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        (parts.next()? == "v1").then_some(())?;
        let mut resource = parts.next()?;
        let mut name = parts.next();
        let mut namespace = "";
        if resource == "namespaces"
            && let (Some(space), Some(inner)) = (name, parts.next())
            && inner != "status"
        {
            (namespace, resource, name) = (space, inner, parts.next());
        }
        let kind = Kind::find(group, resource)?;
        Some(Self { kind, namespace, name })
    }
}

fn write(
    target: &Target<'_>,
    store: &Store,
    method: &Method,
    name: Option<&str>,
    body: &[u8],
) -> Response<Body> {
    let Ok(sent) = serde_json::from_slice::<Value>(body) else {
        return failure(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            "the stand-in reads JSON only",
        );
    };
    match *method {
        Method::POST => {
            answer_write(store.write(target.kind, target.namespace, None, sent, true), StatusCode::CREATED)
        }
        Method::PATCH => {
            let Some(old) = name.and_then(|name| store.get(target.kind, target.namespace, name)) else {
                return refused(Refusal::NotFound);
            };
            let mut merged = (*old).clone();
            merge(&mut merged, &sent);
            answer_write(store.write(target.kind, target.namespace, name, merged, false), StatusCode::OK)
        }
        _ => answer_write(store.write(target.kind, target.namespace, name, sent, false), StatusCode::OK),
    }
}

/// JSON merge patch, RFC 7396; every other sort of patch is read as one.
fn merge(into: &mut Value, patch: &Value) {
    let (Some(into), Some(patch)) = (into.as_object_mut(), patch.as_object()) else {
        *into = patch.clone();
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            into.remove(key);
        } else {
            merge(into.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn list(target: &Target<'_>, store: &Store, tables: bool) -> Response<Body> {
    let (version, objects) = store.list(target.kind, target.namespace);
    let version = version.to_string();
    if tables {
        return object(StatusCode::OK, &table(target.kind, &version, &objects));
    }
    let items: Vec<&Value> = objects.iter().map(AsRef::as_ref).collect();
    object(
        StatusCode::OK,
        &json!({"kind": format!("{}List", target.kind.kind), "apiVersion": target.kind.api_version(), "metadata": {"resourceVersion": version}, "items": items}),
    )
}

/// Server-side printing: what `kubectl get` asks for.
fn table(kind: &Kind, version: &str, objects: &[Arc<Value>]) -> Value {
    let status = |object: &Value| {
        object
            .pointer("/status/phase")
            .or_else(|| object.pointer("/status/conditions/0/type"))
            .cloned()
            .unwrap_or(json!(""))
    };
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            json!({
                "cells": [object["metadata"]["name"], status(object), object["metadata"]["creationTimestamp"]],
                "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]},
            })
        })
        .collect();
    let column = |name: &str, format: &str| json!({"name": name, "type": "string", "format": format, "description": name, "priority": 0});
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version},
        "columnDefinitions": [column("Name", "name"), column(if kind.kind == "Lease" { "Holder" } else { "Status" }, ""), column("Created", "")],
        "rows": rows,
    })
}

fn wants_watch(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "watch=1" | "watch=true" | "watch"))
}

fn watch(target: &Target<'_>, store: &Store) -> Response<Body> {
    let (resource, namespace) = (target.kind.resource, target.namespace.to_owned());
    let events = stream::unfold((store.watch(), namespace), move |(mut receiver, namespace)| async move {
        loop {
            match receiver.recv().await {
                Ok(event)
                    if event.resource == resource
                        && (namespace.is_empty() || event.namespace == namespace) =>
                {
                    return Some((Ok(Frame::data(line(&event))), (receiver, namespace)));
                }
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_) | broadcast::error::RecvError::Closed) => {
                    return None;
                }
            }
        }
    });
    let mut response = Response::new(StreamBody::new(events).boxed_unsync());
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

fn line(event: &Event) -> Bytes {
    let mut text = json!({"type": event.change, "object": *event.object}).to_string();
    text.push('\n');
    text.into()
}

fn groups() -> Value {
    let version = json!({"groupVersion": "coordination.k8s.io/v1", "version": "v1"});
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "coordination.k8s.io", "versions": [version], "preferredVersion": version}]})
}

fn resources(group: &str, group_version: &str) -> Value {
    let listed: Vec<Value> = KINDS
        .iter()
        .filter(|kind| kind.group == group)
        .map(|kind| {
            json!({
                "name": kind.resource, "singularName": kind.kind.to_lowercase(), "namespaced": kind.namespaced, "kind": kind.kind,
                "shortNames": kind.short, "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            })
        })
        .collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed})
}

fn metrics(store: &Store) -> String {
    let mut text = String::from("# TYPE apiserver_resource_objects gauge\n");
    for kind in KINDS {
        let (_, objects) = store.list(kind, "");
        text += &format!(
            "apiserver_resource_objects{{group=\"{}\",resource=\"{}\"}} {}\n",
            kind.group,
            kind.resource,
            objects.len()
        );
    }
    text
}

fn answer_write(outcome: Result<Arc<Value>, Refusal>, status: StatusCode) -> Response<Body> {
    match outcome {
        Ok(written) => object(status, &written),
        Err(refusal) => refused(refusal),
    }
}

fn refused(refusal: Refusal) -> Response<Body> {
    match refusal {
        Refusal::NotFound => failure(StatusCode::NOT_FOUND, "NotFound", "no such object"),
        Refusal::AlreadyExists => failure(StatusCode::CONFLICT, "AlreadyExists", "there is one already"),
        Refusal::Invalid => {
            failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", "an object needs metadata.name")
        }
    }
}

fn failure(status: StatusCode, reason: &str, message: &str) -> Response<Body> {
    object(
        status,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "message": message, "code": status.as_u16()}),
    )
}

fn object(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())).boxed_unsync());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

fn text(words: &str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(words.as_bytes())).boxed_unsync());
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
