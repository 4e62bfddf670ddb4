//! A cluster described in a file: the same words as on the command line.

use serde::Deserialize;

/// What a file may say; sizes and times are texts with units, read where flags are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Local memory for the program.
    pub local: Option<String>,
    /// A model's name, or its file.
    pub paging: Option<String>,
    /// A documented way to load and store, a latency, or `none`.
    pub direct: Option<String>,
    /// A load from this machine's own memory.
    pub local_load: Option<String>,
    /// The processor's cache.
    pub cache: Option<String>,
}

impl Description {
    /// From the text of a TOML file.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_flags_say() {
        let description = Description::parse("local = \"4G\"\ndirect = \"300ns\"\n").expect("sound");
        assert_eq!(
            (description.local.as_deref(), description.direct.as_deref(), description.paging),
            (Some("4G"), Some("300ns"), None)
        );
        let wrong = Description::parse("locale = \"4G\"\n").expect_err("no such key");
        assert!(wrong.contains("locale") && wrong.contains('1'), "{wrong}");
    }
}
