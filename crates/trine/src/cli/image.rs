//! `trine image`: the node's images, on the same folder as the runtime's, with or without a running daemon.

use std::path::{Path, PathBuf};

use anyhow::Context;
use trine_images::{BuildSpec, ImageStore};

use super::args::{BuildArgs, ImageCommand};
use crate::layout::Layout;
use crate::program;
use crate::registries::RegistryArgs;

/// Runs the command.
///
/// # Errors
/// What the image store says.
pub async fn run(command: ImageCommand) -> anyhow::Result<()> {
    match command {
        ImageCommand::Pull { reference, registries, data_dir } => {
            let image = open_with(&data_dir.data_dir, &registries)?.pull(&reference, None).await?;
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
        ImageCommand::Build(args) => build(&args)?,
    }
    Ok(())
}

/// Prints the image's id and name, and the manifest's digest if there is one.
fn build(args: &BuildArgs) -> anyhow::Result<()> {
    let spec = match args.sources.as_slice() {
        [folder] if Path::new(folder).is_dir() => {
            let settings = match &args.config {
                Some(file) => std::fs::read_to_string(file)
                    .with_context(|| format!("cannot read {}", file.display()))?,
                None => "{}".to_owned(),
            };
            let spec = BuildSpec::of_tree(&args.tag, folder, &settings)?;
            BuildSpec { entrypoint: [spec.entrypoint, args.entrypoint.clone()].concat(), ..spec }
        }
        files => {
            anyhow::ensure!(args.config.is_none(), "--config goes with one folder, not with programs");
            program::spec(&args.tag, &pairs(files)?, args.entrypoint.clone())?
        }
    };
    match &args.output {
        Some(archive) => {
            let built = spec.write_archive(archive)?;
            println!("{} {} {}", built.id, args.tag, built.digest);
        }
        None => println!("{} {}", open(&args.data_dir.data_dir)?.build(&spec)?.id, args.tag),
    }
    Ok(())
}

fn open(data_dir: &Path) -> anyhow::Result<ImageStore> {
    open_with(data_dir, &RegistryArgs::default())
}

fn open_with(data_dir: &Path, registries: &RegistryArgs) -> anyhow::Result<ImageStore> {
    let layout = Layout::new(data_dir)?;
    ImageStore::open(layout.images(), registries.options(&layout))
        .with_context(|| format!("cannot open the images in {}", layout.images().display()))
}

fn pairs(files: &[String]) -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
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
