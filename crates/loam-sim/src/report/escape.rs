//! Text for HTML and SVG.

/// `text` with everything escaped that means something in XML or HTML, in text and in quoted attributes alike.
///
/// Control characters that XML 1.0 forbids become the replacement character: one of them would make the whole file unreadable.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' => out.push(letter),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {
                out.push('\u{fffd}')
            }
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(
            escape("<script>\"a\" & 'b'</script>"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;"
        );
        assert_eq!(escape("a\u{0}b\u{1b}[1mc\u{ffff}"), "a\u{fffd}b\u{fffd}[1mc\u{fffd}");
        assert_eq!(escape("½ µs\n"), "½ µs\n");
    }
}
