//! Where a site's etcd is.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Servers of one etcd that may be named.
const ENDPOINTS_MAX: usize = 16;
/// Longest name of a cluster, in bytes.
const CLUSTER_BYTES_MAX: usize = 64;

/// `etcd://HOST:PORT[,HOST:PORT...][/CLUSTER]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSite {
    endpoints: Vec<String>,
    cluster: String,
}

/// Text that does not say where an etcd is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdSiteError {
    /// Another scheme.
    #[error("write etcd://HOST:PORT[,HOST:PORT...][/CLUSTER]")]
    Form,
    /// Encryption was asked for.
    #[error(
        "etcd is spoken to without TLS only: write etcd://HOST:PORT, of a tunnel on loopback if it is elsewhere"
    )]
    Tls,
    /// One that cannot be connected to.
    #[error("\"{0}\" is no HOST:PORT")]
    Endpoint(String),
    /// Too many.
    #[error("at most {ENDPOINTS_MAX} servers can be named")]
    Endpoints,
    /// It would not fit in a key.
    #[error("the cluster's name is at most {CLUSTER_BYTES_MAX} letters, digits, '-', '_' and '.'")]
    Cluster,
}

impl FromStr for EtcdSite {
    type Err = EtcdSiteError;

    fn from_str(text: &str) -> Result<Self, EtcdSiteError> {
        if text.starts_with("etcds://") || text.starts_with("https://") {
            return Err(EtcdSiteError::Tls);
        }
        let rest = text.strip_prefix("etcd://").ok_or(EtcdSiteError::Form)?;
        let (hosts, cluster) = rest.split_once('/').unwrap_or((rest, ""));
        let endpoints: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        if endpoints.len() > ENDPOINTS_MAX {
            return Err(EtcdSiteError::Endpoints);
        }
        if let Some(wrong) = endpoints.iter().find(|endpoint| !is_endpoint(endpoint)) {
            return Err(EtcdSiteError::Endpoint(wrong.clone()));
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if cluster.len() > CLUSTER_BYTES_MAX || !cluster.chars().all(fits) {
            return Err(EtcdSiteError::Cluster);
        }
        let cluster = if cluster.is_empty() { "default" } else { cluster };
        Ok(Self { endpoints, cluster: cluster.to_owned() })
    }
}

/// Whether it can be part of a URL and has a port. Names are resolved when they are used.
fn is_endpoint(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let six = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host_fits = match six {
        Some(six) => six.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()),
        None => {
            let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !host.is_empty() && host.len() <= 253 && host.chars().all(fits)
        }
    };
    host_fits && port.parse::<u16>().is_ok_and(|port| port > 0)
}

impl EtcdSite {
    /// HOST:PORT of each server.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Keys of nodes begin so.
    pub(crate) fn prefix(&self) -> String {
        format!("/loam/{}/nodes/", self.cluster)
    }

    /// A server on another machine, if there is one.
    pub(crate) fn elsewhere(&self) -> Option<&str> {
        let here = |endpoint: &&String| {
            let host = endpoint.rsplit_once(':').map_or("", |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        };
        self.endpoints.iter().find(|endpoint| !here(endpoint)).map(String::as_str)
    }
}

impl fmt::Display for EtcdSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}/{}", self.endpoints.join(","), self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_read_and_written() {
        let site: EtcdSite = "etcd://10.0.0.1:2379,etcd-2.site:2379,[::1]:2379/blue".parse().unwrap();
        assert_eq!(site.endpoints(), ["10.0.0.1:2379", "etcd-2.site:2379", "[::1]:2379"]);
        assert_eq!(site.prefix(), "/loam/blue/nodes/");
        assert_eq!(site.to_string().parse(), Ok(site.clone()));
        assert_eq!(site.elsewhere(), Some("10.0.0.1:2379"));
        let here: EtcdSite = "etcd://127.0.0.1:2379,localhost:1,[::1]:2/".parse().unwrap();
        assert_eq!((here.elsewhere(), here.prefix().as_str()), (None, "/loam/default/nodes/"));
    }

    #[test]
    fn what_is_no_site_is_refused() {
        let read = |text: &str| text.parse::<EtcdSite>();
        assert_eq!(read("etcds://a:1"), Err(EtcdSiteError::Tls));
        assert_eq!(read("https://a:1"), Err(EtcdSiteError::Tls));
        assert_eq!(read("a:1"), Err(EtcdSiteError::Form));
        for wrong in [
            "",
            "a",
            "a:",
            "a:0",
            "a:70000",
            ":1",
            "a b:1",
            "::1:1",
            "[1.2.3.4]:1",
            "a:1\r\nX: y",
            "user@a:1",
        ] {
            assert!(matches!(read(&format!("etcd://{wrong}")), Err(EtcdSiteError::Endpoint(_))), "{wrong}");
        }
        assert_eq!(read("etcd://a:1/b/c"), Err(EtcdSiteError::Cluster));
        assert_eq!(read(&format!("etcd://a:1/{}", "x".repeat(65))), Err(EtcdSiteError::Cluster));
        assert_eq!(read(&format!("etcd://{}", ["a:1"; 17].join(","))), Err(EtcdSiteError::Endpoints));
    }
}
