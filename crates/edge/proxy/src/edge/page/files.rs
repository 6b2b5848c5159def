//! The page as it is embedded. `make page` builds the script and the style from `crates/edge/proxy/page`.

use edgeward_httpd::{File, Media};

pub(in crate::edge) const PAGE: File = File {
    media: Media::Html,
    bytes: include_bytes!("../../../page/src/page.html"),
};

pub(in crate::edge) const SCRIPT: File = File {
    media: Media::JavaScript,
    bytes: include_bytes!("../../../page/dist/page.js"),
};

pub(in crate::edge) const STYLE: File = File {
    media: Media::Css,
    bytes: include_bytes!("../../../page/dist/page.css"),
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// `make page` records the hash of the sources, so that this check needs no npm.
    #[test]
    fn the_page_is_built_from_its_sources() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        // `build.mjs` lists the same files.
        let mut names = ["build.mjs", "package-lock.json", "tsconfig.json"]
            .map(str::to_owned)
            .to_vec();
        for entry in std::fs::read_dir(folder.join("src")).expect("the sources exist") {
            let name = entry.expect("the folder can be read").file_name();
            names.push(format!("src/{}", name.to_str().expect("names are ASCII")));
        }
        names.sort();
        let mut hash = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        for name in names {
            hash.update(format!("{name}\n").as_bytes());
            hash.update(&std::fs::read(folder.join(&name)).expect("the source can be read"));
        }
        let found: String = hash
            .finish()
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let recorded = include_str!("../../../page/dist/sources.sha256");
        assert_eq!(
            found,
            recorded.trim(),
            "run `make page` and commit crates/edge/proxy/page/dist"
        );
    }

    /// The policy of the admin server forbids scripts and styles within the page.
    #[test]
    fn the_page_is_small_and_has_no_script_or_style_of_its_own() {
        let all = [PAGE, SCRIPT, STYLE].map(|file| file.bytes.len());
        assert!(all.iter().sum::<usize>() <= 150 * 1024, "{all:?}");
        let html = std::str::from_utf8(PAGE.bytes).expect("the page is UTF-8");
        assert!(html.contains("<script src=\"/page.js\" defer></script>"));
        assert_eq!(html.matches("<script").count(), 1);
        for forbidden in [
            "<style",
            " style=",
            " onclick=",
            " onload=",
            "src=\"http",
            "href=\"http",
        ] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
    }
}
