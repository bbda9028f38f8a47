//! `trine image`: the node's images, on the same folder as the runtime's, with or without a running daemon. What comes or goes,
//! comes to or goes from every node of this machine.

use std::path::{Path, PathBuf};

use anyhow::Context;
use trine_images::{BuildSpec, ImageStore};

use super::args::{BuildArgs, ImageCommand};
use crate::layout::Layout;
use crate::nodes;
use crate::program;
use crate::registries::RegistryArgs;

/// Runs the command.
///
/// # Errors
/// What the image store says.
pub async fn run(command: ImageCommand) -> anyhow::Result<()> {
    match command {
        ImageCommand::Pull { reference, registries, data_dir } => {
            for (number, store) in every(&data_dir.data_dir, &registries)?.into_iter().enumerate() {
                let image = store.pull(&reference, None).await?;
                if number == 0 {
                    println!("{}", image.id);
                }
            }
        }
        ImageCommand::Import { file, data_dir } => {
            for (number, store) in
                every(&data_dir.data_dir, &RegistryArgs::default())?.into_iter().enumerate()
            {
                for image in store.import(&file)?.iter().filter(|_| number == 0) {
                    println!("{} {}", image.id, image.repo_tags.join(" "));
                }
            }
        }
        ImageCommand::Ls { data_dir } => {
            for image in open(&data_dir.data_dir)?.list()? {
                let short: String = image.id.trim_start_matches("sha256:").chars().take(12).collect();
                println!("{short}  {:>9}  {}", megabytes(image.size), image.repo_tags.join(" "));
            }
        }
        ImageCommand::Rm { image, data_dir } => {
            for store in every(&data_dir.data_dir, &RegistryArgs::default())? {
                store.remove(&image)?;
            }
        }
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
        None => {
            for (number, store) in
                every(&args.data_dir.data_dir, &RegistryArgs::default())?.into_iter().enumerate()
            {
                let built = store.build(&spec)?;
                if number == 0 {
                    println!("{} {}", built.id, args.tag);
                }
            }
        }
    }
    Ok(())
}

fn open(data_dir: &Path) -> anyhow::Result<ImageStore> {
    open_with(&Layout::new(data_dir)?, &RegistryArgs::default())
}

/// The images of every node of this machine, the first node's first.
fn every(data_dir: &Path, registries: &RegistryArgs) -> anyhow::Result<Vec<ImageStore>> {
    let layout = Layout::new(data_dir)?;
    let mut layouts = vec![layout.clone()];
    for dir in nodes::folders(&layout) {
        layouts.push(Layout::seen_as(&dir, layout.root())?);
    }
    layouts.iter().map(|layout| open_with(layout, registries)).collect()
}

fn open_with(layout: &Layout, registries: &RegistryArgs) -> anyhow::Result<ImageStore> {
    ImageStore::open(layout.images(), registries.options(layout))
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
