//! Links in pages that came through a proxy: those that are absolute at the far end lead back through the proxy, as redirects
//! do. Which attributes hold links, and that a page is read whole, is as upstream has it.

use std::io::{self, Read};
use std::ops::Range;

use flate2::read::{DeflateDecoder, GzDecoder};
use html5gum::emitters::default::DefaultEmitter;
use html5gum::{Token, Tokenizer};
use http::{HeaderMap, header};

/// A page that is longer is given as it is, bytes.
const LONGEST: u64 = 64 << 20;

/// The attributes that hold links, by element.
const LINKS: [(&str, &[&str]); 26] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["formaction", "src", "usemap"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("track", &["src"]),
    ("video", &["poster", "src"]),
];

/// Whether an answer is a page whose links can be changed.
pub(super) fn is_page(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = text(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("text/html") && Encoding::named(text(header::CONTENT_ENCODING)).is_some()
}

/// A page with its links changed by `lead`, and the headers that fit it.
pub(super) fn rewritten(headers: &mut HeaderMap, body: &[u8], lead: impl Fn(&str) -> String) -> Vec<u8> {
    let encoding = headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok());
    let Some(Ok(page)) = Encoding::named(encoding.unwrap_or_default()).map(|encoding| encoding.read(body))
    else {
        return body.to_vec();
    };
    headers.remove(header::CONTENT_ENCODING);
    headers.remove(header::CONTENT_LENGTH);
    changed(&page, lead)
}

enum Encoding {
    Plain,
    Gzip,
    Deflate,
}

impl Encoding {
    fn named(name: &str) -> Option<Self> {
        match name {
            "" | "identity" => Some(Self::Plain),
            "gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            _ => None,
        }
    }

    fn read(&self, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut page = Vec::new();
        match self {
            Self::Plain => page.extend_from_slice(body),
            Self::Gzip => drop(GzDecoder::new(body).take(LONGEST + 1).read_to_end(&mut page)?),
            Self::Deflate => drop(DeflateDecoder::new(body).take(LONGEST + 1).read_to_end(&mut page)?),
        }
        if page.len() as u64 > LONGEST {
            return Err(io::Error::other("the page is too long"));
        }
        Ok(page)
    }
}

fn changed(page: &[u8], lead: impl Fn(&str) -> String) -> Vec<u8> {
    let mut emitter = DefaultEmitter::<usize>::new_with_span();
    // So that what looks like a tag inside a script is none.
    emitter.naively_switch_states(true);
    let mut out = Vec::with_capacity(page.len());
    let mut done = 0;
    for token in Tokenizer::new_with_emitter(page, emitter) {
        let Ok(Token::StartTag(tag)) = token else { continue };
        let Some((_, names)) = LINKS.iter().find(|(element, _)| element.as_bytes() == tag.name.0) else {
            continue;
        };
        let mut links: Vec<_> = tag
            .attributes
            .iter()
            .filter(|(name, _)| names.iter().any(|known| known.as_bytes() == name.0))
            .map(|(_, value)| (value.span, String::from_utf8_lossy(&value.value).into_owned()))
            .collect();
        links.sort_by_key(|(span, _)| span.start);
        for (span, old) in links {
            let new = lead(&old);
            let Some(inner) = value_within(page, span.start..span.end) else { continue };
            if new == old || inner.start < done {
                continue;
            }
            out.extend_from_slice(&page[done..inner.start]);
            out.extend_from_slice(escaped(&new).as_bytes());
            done = inner.end;
        }
    }
    out.extend_from_slice(&page[done..]);
    out
}

/// Where the value stands in an attribute such as `href='/x'`: between its quotes; without quotes up to the sign behind it, which the
/// tokenizer counts in.
fn value_within(page: &[u8], attribute: Range<usize>) -> Option<Range<usize>> {
    let written = page.get(attribute.clone())?;
    let equals = written.iter().position(|byte| *byte == b'=')?;
    let blanks = written[equals + 1..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let first = equals + 1 + blanks;
    let quoted = matches!(written.get(first), Some(b'"' | b'\''));
    let inner = attribute.start + first + usize::from(quoted)..attribute.end - 1;
    (inner.start <= inner.end).then_some(inner)
}

/// As the value of an attribute, whatever its quotes are.
fn escaped(link: &str) -> String {
    link.replace('&', "&amp;").replace('"', "&#34;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::GzEncoder;

    fn lead(link: &str) -> String {
        if link.starts_with('/') { format!("/base{link}") } else { link.to_owned() }
    }

    fn led(page: &str) -> String {
        String::from_utf8(changed(page.as_bytes(), lead)).unwrap()
    }

    #[test]
    fn absolute_links_lead_through_the_proxy_and_all_else_stays() {
        for (page, wanted) in [
            (r#"<a href="/rewriteme">test</a>"#, r#"<a href="/base/rewriteme">test</a>"#),
            ("<A CLASS=x HREF=/a >t</A>", "<A CLASS=x HREF=/base/a >t</A>"),
            ("<a href = '/x'b=c>", "<a href = '/base/x'b=c>"),
            (
                "<img src='/i?a=1&amp;b=2' usemap=\"/m\">",
                "<img src='/base/i?a=1&amp;b=2' usemap=\"/base/m\">",
            ),
            ("ä\r\n<a href='/x'>ö</a>\r\n", "ä\r\n<a href='/base/x'>ö</a>\r\n"),
            ("<a href=\"x\">r</a><p href=\"/y\">", "<a href=\"x\">r</a><p href=\"/y\">"),
            ("<script>\"<a href='/x'>\"</script>", "<script>\"<a href='/x'>\"</script>"),
            ("<!-- <a href='/x'> --><a href=", "<!-- <a href='/x'> --><a href="),
            ("", ""),
        ] {
            assert_eq!(led(page), wanted);
        }
    }

    #[test]
    fn pages_are_told_by_their_type_and_read_through_their_encoding() {
        let headers = |kind: &str, encoding: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            headers.insert(header::CONTENT_ENCODING, encoding.parse().unwrap());
            headers
        };
        assert!(is_page(&headers("text/HTML; charset=utf-8", "")));
        assert!(!is_page(&headers("text/html", "br")));
        assert!(!is_page(&headers("application/json", "")));
        let mut zipped = Vec::new();
        GzEncoder::new(&b"<a href=/x>"[..], Compression::default()).read_to_end(&mut zipped).unwrap();
        let mut given = headers("text/html", "gzip");
        assert_eq!(rewritten(&mut given, &zipped, lead), b"<a href=/base/x>");
        assert!(!given.contains_key(header::CONTENT_ENCODING));
        let mut broken = headers("text/html", "gzip");
        assert_eq!(rewritten(&mut broken, b"no gzip", lead), b"no gzip");
        assert!(broken.contains_key(header::CONTENT_ENCODING));
    }
}
