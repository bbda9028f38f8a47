//! `trine image`: the node's images, on the same folder as the runtime's, with or without a running daemon.

use std::path::PathBuf;

use anyhow::Context;
use trine_images::{ImageStore, Options};

use super::args::ImageCommand;
use crate::layout::Layout;
use crate::program;

/// Runs the command.
///
/// # Errors
/// What the image store says.
pub async fn run(command: ImageCommand) -> anyhow::Result<()> {
    match command {
        ImageCommand::Pull { reference, data_dir } => {
            let image = open(&data_dir.data_dir)?.pull(&reference, None).await?;
            println!("{}", image.id);
        }
        ImageCommand::Import { file, data_dir } => {
            for image in open(&data_dir.data_dir)?.import(&file)? {
                println!("{} {}", image.id, image.repo_tags.join(" "));
            }
        }
        ImageCommand::Ls { data_dir } => {
            for image in open(&data_dir.data_dir)?.list()? {
                let short: String = image.id.trim_start_matches("sha256:").chars().take(12).collect();
                println!("{short}  {:>9}  {}", megabytes(image.size), image.repo_tags.join(" "));
            }
        }
        ImageCommand::Rm { image, data_dir } => open(&data_dir.data_dir)?.remove(&image)?,
        ImageCommand::Build { tag, files, entrypoint, data_dir } => {
            let store = open(&data_dir.data_dir)?;
            let image = program::build_image(&store, &tag, &sources(&files)?, entrypoint)?;
            println!("{} {tag}", image.id);
        }
    }
    Ok(())
}

fn open(data_dir: &std::path::Path) -> anyhow::Result<ImageStore> {
    let layout = Layout::new(data_dir)?;
    ImageStore::open(layout.images(), Options::default())
        .with_context(|| format!("cannot open the images in {}", layout.images().display()))
}

fn sources(files: &[String]) -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
    let pair = |text: &String| {
        let (from, to) = text.split_once(':').unwrap_or((text, text));
        let from = std::fs::canonicalize(from).with_context(|| format!("there is no {from}"))?;
        let to = std::path::absolute(to)?;
        Ok((from, to))
    };
    files.iter().map(pair).collect()
}

#[expect(clippy::cast_precision_loss, reason = "sizes of images are far below 2^52")]
fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
