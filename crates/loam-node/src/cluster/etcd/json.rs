//! etcd's v3 API as its JSON gateway writes it: bytes in base64, 64-bit numbers as text, fields that are zero left out.

use super::{Answer, Call, Change, Trouble};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::json;

/// gRPC's number for "not found".
const NOT_FOUND: u64 = 5;

/// A 64-bit number.
#[derive(Clone, Copy, Debug, Default)]
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either<'a> {
            Number(u64),
            Text(&'a str),
        }
        match Either::deserialize(from)? {
            Either::Number(number) => Ok(Self(number)),
            // Ids are signed where they are printed, and any bits will do.
            Either::Text(text) => text
                .parse()
                .or_else(|_| text.parse::<i64>().map(i64::cast_unsigned))
                .map(Self)
                .map_err(serde::de::Error::custom),
        }
    }
}

/// Bytes.
#[derive(Debug, Default)]
struct Binary(Vec<u8>);

impl<'de> Deserialize<'de> for Binary {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'_, str>>::deserialize(from)?;
        BASE64.decode(text.as_bytes()).map(Self).map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Header {
    revision: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KeyValue {
    key: Binary,
    value: Binary,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Granted {
    #[serde(rename = "ID")]
    id: Number,
    #[serde(rename = "TTL")]
    ttl: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Listed {
    header: Header,
    kvs: Vec<KeyValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    kv: KeyValue,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Watched {
    canceled: bool,
    cancel_reason: String,
    compact_revision: Number,
    events: Vec<Event>,
}

/// One message of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "T: Deserialize<'de> + Default"))]
struct Streamed<T> {
    result: Option<T>,
    error: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refused {
    message: String,
    error: String,
    code: u64,
}

/// Where to ask, and the body of the question. `prefix` is of all keys.
pub(super) fn question(call: &Call, prefix: &str) -> (&'static str, String) {
    let key = |below: &str| BASE64.encode(format!("{prefix}{below}"));
    // The first key after all that begin with the prefix, which ends in a slash.
    let end = || {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().expect("a prefix has letters") += 1;
        BASE64.encode(end)
    };
    let (path, body) = match call {
        Call::Grant { ttl_s } => ("/v3/lease/grant", json!({ "TTL": ttl_s.to_string() })),
        Call::Keep { lease } => ("/v3/lease/keepalive", json!({ "ID": id(*lease) })),
        Call::Put { lease, key: below, value } => {
            let value = BASE64.encode(value);
            ("/v3/kv/put", json!({ "key": key(below), "value": value, "lease": id(*lease) }))
        }
        Call::Remove { key: below } => ("/v3/kv/deleterange", json!({ "key": key(below) })),
        Call::List => ("/v3/kv/range", json!({ "key": key(""), "range_end": end() })),
        Call::Watch { from } => {
            let what = json!({ "key": key(""), "range_end": end(), "start_revision": from.to_string() });
            ("/v3/watch", json!({ "create_request": what }))
        }
        Call::Revoke { lease } => ("/v3/lease/revoke", json!({ "ID": id(*lease) })),
    };
    (path, body.to_string())
}

fn id(lease: u64) -> String {
    lease.cast_signed().to_string()
}

fn failed(why: impl Into<String>) -> Trouble {
    Trouble::Failed(why.into())
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Trouble> {
    serde_json::from_slice(body).map_err(|error| failed(format!("its answer is not etcd's ({error})")))
}

/// The answer to a call that is no watch.
pub(super) fn answer(call: &Call, prefix: &str, status: u16, body: &[u8]) -> Result<Answer, Trouble> {
    if status != 200 {
        return Err(refused(status, body));
    }
    match call {
        Call::Grant { .. } => match read::<Granted>(body)?.id.0 {
            0 => Err(failed("it grants no lease")),
            lease => Ok(Answer::Granted { lease }),
        },
        Call::Keep { .. } => {
            let streamed: Streamed<Granted> = read(body)?;
            let Some(kept) = streamed.result else { return Err(failed(error_of(streamed.error.as_ref()))) };
            Ok(Answer::Kept(kept.ttl.0 > 0))
        }
        Call::List => {
            let Listed { header, kvs } = read(body)?;
            // It is a signed number there, and the watch begins one behind it.
            if header.revision.0 == 0 || header.revision.0 >= i64::MAX as u64 {
                return Err(failed("its list has no revision"));
            }
            let keys = kvs.into_iter().filter_map(|kv| change(prefix, kv, false)).collect();
            Ok(Answer::Listed { revision: header.revision.0, keys })
        }
        Call::Put { .. } | Call::Remove { .. } | Call::Revoke { .. } => {
            read::<serde_json::Map<String, serde_json::Value>>(body).map(|_| Answer::Done)
        }
        Call::Watch { .. } => unreachable!("a watch has many answers"),
    }
}

/// A line of a watch: what has changed; nothing if it says that it has begun.
pub(super) fn watched(prefix: &str, line: &[u8]) -> Result<Vec<Change>, Trouble> {
    let streamed: Streamed<Watched> = read(line)?;
    let Some(watched) = streamed.result else { return Err(failed(error_of(streamed.error.as_ref()))) };
    if watched.compact_revision.0 > 0 {
        return Err(failed("what has changed was compacted away"));
    }
    if watched.canceled {
        return Err(failed(format!("it ended the watch {}", printable(&watched.cancel_reason))));
    }
    let changes =
        watched.events.into_iter().filter_map(|event| change(prefix, event.kv, event.kind == "DELETE"));
    Ok(changes.collect())
}

/// `None`: it is not below the prefix, and was not asked for.
fn change(prefix: &str, kv: KeyValue, removed: bool) -> Option<Change> {
    let key = kv.key.0.strip_prefix(prefix.as_bytes())?.to_vec();
    Some(Change { key, value: (!removed).then_some(kv.value.0) })
}

/// Why a call was refused.
pub(super) fn refused(status: u16, body: &[u8]) -> Trouble {
    let refused: Refused = serde_json::from_slice(body).unwrap_or_default();
    if refused.code == NOT_FOUND && refused.error.contains("lease") {
        return Trouble::LeaseGone;
    }
    let why = if refused.message.is_empty() { &refused.error } else { &refused.message };
    match why.as_str() {
        "" => failed(format!("HTTP {status}: is it an etcd of version 3.4 or newer?")),
        why => failed(printable(why)),
    }
}

fn error_of(error: Option<&serde_json::Value>) -> String {
    let message = error.and_then(|error| error.get("message").or(Some(error)));
    message.map_or("its answer is empty".to_owned(), |error| match error.as_str() {
        Some(text) => printable(text),
        None => printable(&error.to_string()),
    })
}

/// Foreign text in a log.
fn printable(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "/loam/d/nodes/";
    /// All of this is from etcd 3.4.23.
    const HEADER: &str = r#""header":{"cluster_id":"15118495548433857066","member_id":"13668033151171901709","revision":"3","raft_term":"2"}"#;
    const KV: &str = r#"{"key":"L2xvYW0vZC9ub2Rlcy8x","create_revision":"2","mod_revision":"2","version":"1","value":"L2xvYW0vZC9ub2Rlcy8x","lease":"4111120154234246917"}"#;

    fn there() -> Change {
        Change { key: b"1".to_vec(), value: Some(b"/loam/d/nodes/1".to_vec()) }
    }

    #[test]
    fn questions_are_written_as_etcd_reads_them() {
        let asked = |call: Call| question(&call, PREFIX);
        let lease = 4_111_120_154_234_246_917;
        assert_eq!(asked(Call::Grant { ttl_s: 5 }), ("/v3/lease/grant", r#"{"TTL":"5"}"#.into()));
        assert_eq!(
            asked(Call::Keep { lease }),
            ("/v3/lease/keepalive", r#"{"ID":"4111120154234246917"}"#.into())
        );
        assert_eq!(asked(Call::Revoke { lease: u64::MAX }).1, r#"{"ID":"-1"}"#);
        let put = asked(Call::Put { lease: 7, key: "1".into(), value: "/loam/d/nodes/1".into() });
        assert_eq!(put.1, r#"{"key":"L2xvYW0vZC9ub2Rlcy8x","lease":"7","value":"L2xvYW0vZC9ub2Rlcy8x"}"#);
        let (path, watch) = asked(Call::Watch { from: 9 });
        assert!(path == "/v3/watch" && watch.contains(r#""start_revision":"9""#), "{watch}");
        let end = BASE64.encode("/loam/d/nodes0");
        assert!(watch.contains(&end) && asked(Call::List).1.contains(&end), "{watch}");
    }

    #[test]
    fn answers_are_read_as_etcd_writes_them() {
        let granted = format!(r#"{{{HEADER},"ID":"4111120154234246917","TTL":"2"}}"#);
        let read = |call: &Call, body: &str| answer(call, PREFIX, 200, body.as_bytes());
        assert_eq!(
            read(&Call::Grant { ttl_s: 2 }, &granted),
            Ok(Answer::Granted { lease: 4_111_120_154_234_246_917 })
        );
        let keep = Call::Keep { lease: 77 };
        assert_eq!(read(&keep, &format!("{{\"result\":{granted}}}\n")), Ok(Answer::Kept(true)));
        assert_eq!(read(&keep, &format!(r#"{{"result":{{{HEADER},"ID":"77"}}}}"#)), Ok(Answer::Kept(false)));
        let list = format!(r#"{{{HEADER},"kvs":[{KV}],"count":"1"}}"#);
        assert_eq!(read(&Call::List, &list), Ok(Answer::Listed { revision: 3, keys: vec![there()] }));
        let empty = format!("{{{HEADER}}}");
        assert_eq!(read(&Call::List, &empty), Ok(Answer::Listed { revision: 3, keys: vec![] }));
        assert_eq!(read(&Call::Revoke { lease: 1 }, &empty), Ok(Answer::Done));
        let gone = r#"{"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease not found","code":5}"#;
        assert_eq!(refused(404, gone.as_bytes()), Trouble::LeaseGone);
        let Trouble::Failed(why) = refused(404, b"404 page not found\n") else { panic!("no lease") };
        assert!(why.contains("404"), "{why}");
    }

    #[test]
    fn a_watch_is_read_as_etcd_writes_it() {
        let line = |rest: &str| watched(PREFIX, format!(r#"{{"result":{{{HEADER},{rest}}}}}"#).as_bytes());
        assert_eq!(line(r#""created":true"#), Ok(vec![]));
        let gone = Change { key: b"1".to_vec(), value: None };
        let removed = r#"{"type":"DELETE","kv":{"key":"L2xvYW0vZC9ub2Rlcy8x","mod_revision":"3"}}"#;
        assert_eq!(line(&format!(r#""events":[{{"kv":{KV}}},{removed}]"#)), Ok(vec![there(), gone]));
        assert!(line(r#""canceled":true,"compact_revision":"2""#).is_err());
        assert!(
            line(r#""canceled":true,"cancel_reason":"no\u001b leader""#)
                .is_err_and(|why| why == failed("it ended the watch no? leader"))
        );
        assert!(watched(PREFIX, br#"{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}"#).is_err());
    }

    #[test]
    fn what_is_no_answer_is_trouble() {
        for body in [
            "",
            "x",
            "[]",
            r#"{"kvs":[{"key":"?"}]}"#,
            r#"{"header":{"revision":"x"}}"#,
            r#"{"header":{"revision":"-1"}}"#,
            r#"{"header":{"revision":"18446744073709551615"}}"#,
            "{}",
        ] {
            for call in [Call::Grant { ttl_s: 1 }, Call::Keep { lease: 1 }, Call::List] {
                assert!(answer(&call, PREFIX, 200, body.as_bytes()).is_err(), "{call:?}: {body}");
            }
            assert!(watched(PREFIX, body.as_bytes()).is_err(), "{body}");
        }
    }
}
