//! The demo's app: a small web server with a note that it keeps on a volume. `trine web` inside a container.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

/// What `trine web` is told.
#[derive(Debug, Clone, clap::Args)]
pub struct WebArgs {
    /// Address to listen on.
    #[arg(long, default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// Folder of the note; without it there is none.
    #[arg(long)]
    data: Option<PathBuf>,
}

struct App {
    name: String,
    note: Option<PathBuf>,
}

/// Serves until SIGTERM.
///
/// # Errors
/// If the address cannot be listened on.
pub async fn serve(args: WebArgs) -> anyhow::Result<()> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let app = Arc::new(App { name, note: args.data.map(|dir| dir.join("note")) });
    let router = Router::new()
        .route("/", get(|State(app): State<Arc<App>>| async move { format!("hello from {}\n", app.name) }))
        .route("/note", get(read_note).put(write_note))
        .with_state(app);
    let listener = tokio::net::TcpListener::bind(args.listen).await?;
    println!("listening on {}", args.listen);
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    axum::serve(listener, router)
        .with_graceful_shutdown(async move {
            terminate.recv().await;
        })
        .await?;
    println!("stopped");
    Ok(())
}

async fn read_note(State(app): State<Arc<App>>) -> Result<String, (StatusCode, String)> {
    let path = app.note.as_ref().ok_or((StatusCode::NOT_FOUND, "this Pod has no volume\n".to_owned()))?;
    std::fs::read_to_string(path).map_err(|e| (StatusCode::NOT_FOUND, format!("{e}\n")))
}

async fn write_note(State(app): State<Arc<App>>, body: String) -> Result<String, (StatusCode, String)> {
    let path = app.note.as_ref().ok_or((StatusCode::NOT_FOUND, "this Pod has no volume\n".to_owned()))?;
    let written = std::fs::File::create(path).and_then(|mut file| {
        std::io::Write::write_all(&mut file, body.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|e| (StatusCode::INTERNAL_SERVER_ERROR, format!("{e}\n")))?;
    Ok(format!("written by {}\n", app.name))
}
