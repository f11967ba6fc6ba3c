//! Child processes that end with this program, however it ends. Knows nothing of what they do.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::wait;

/// Waits for the end of its input, which comes when the program that holds the other end is gone, then kills the
/// process group that it leads and removes the directory `$1`. What kills and removes is in a session of its own, so
/// that it outlives the group; the shell itself stays until it is killed, so that the group's id cannot be reused.
const GUARDIAN: &str = r#"
trap '' HUP INT
read -r order
if [ "$order" = leave ]; then trap - HUP INT; exec sleep infinity; fi
setsid --fork sh -c '
    kill -s KILL -- "-$1"
    [ -n "$2" ] || exit 0
    tries=0
    until rm -rf -- "$2" || [ $((tries += 1)) -ge 100 ]; do sleep 0.05; done
' sweep $$ "$1" || kill -s KILL 0
exec sleep infinity
"#;

/// What happens to the directory of a [`ProcessGroup`] when the group ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AtEnd {
    RemoveDirectory,
    KeepDirectory,
}

/// A directory and the processes that live in it.
///
/// The processes are members of one process group, led by a shell that watches a pipe from this program. The kernel
/// closes the pipe when this program is gone, also after `kill -9`. (A parent-death signal would not do: it is sent
/// when the *thread* that started the child ends, and every test has a thread of its own.)
pub struct ProcessGroup {
    directory: PathBuf,
    at_end: AtEnd,
    guardian: Mutex<Child>,
    id: Pid,
    left_running: AtomicBool,
}

impl ProcessGroup {
    pub fn new(prefix: &str, at_end: AtEnd) -> Result<Arc<ProcessGroup>> {
        let directory = tempfile::Builder::new().prefix(prefix).tempdir()?.keep();
        let removed = match at_end {
            AtEnd::RemoveDirectory => directory.as_os_str(),
            AtEnd::KeepDirectory => "".as_ref(),
        };
        let guardian = Command::new("sh")
            .args(["-c", GUARDIAN, "guardian"])
            .arg(removed)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("starting the shell that ends the other processes")?;
        let id = Pid::from_child(&guardian);
        Ok(Arc::new(ProcessGroup {
            directory,
            at_end,
            guardian: Mutex::new(guardian),
            id,
            left_running: AtomicBool::new(false),
        }))
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The id of the process group, as `kill -s KILL -- -ID` takes it.
    pub fn id(&self) -> i32 {
        self.id.as_raw_nonzero().get()
    }

    /// Lets the processes live on when this program ends. Returns the shell command that ends them.
    pub fn leave_running(&self) -> Result<String> {
        let mut guardian = lock(&self.guardian);
        let pipe = guardian
            .stdin
            .as_mut()
            .context("the processes were left running already")?;
        pipe.write_all(b"leave\n")
            .context("telling the guardian to leave the processes running")?;
        guardian.stdin = None;
        self.left_running.store(true, Ordering::SeqCst);
        Ok(format!(
            "kill -s KILL -- -{} && rm -rf {}",
            self.id(),
            self.directory.display()
        ))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if self.left_running.load(Ordering::SeqCst) {
            return;
        }
        let mut guardian = lock(&self.guardian);
        guardian.stdin = None;
        let _ = guardian.wait();
        let started = Instant::now();
        while self.at_end == AtEnd::RemoveDirectory
            && self.directory.exists()
            && started.elapsed() < Duration::from_secs(5)
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// One program of a [`ProcessGroup`]: started, killed, frozen and started again under the same name, command line and
/// log file. Dropping it kills it.
pub struct Process {
    name: String,
    log: PathBuf,
    group: Arc<ProcessGroup>,
    state: Mutex<State>,
}

struct State {
    command: Command,
    child: Option<Child>,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Prepares a process whose output goes to `<name>.log` in the directory of the group.
    pub fn new(group: &Arc<ProcessGroup>, name: &str, mut command: Command) -> Result<Process> {
        let log = group.directory.join(format!("{name}.log"));
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("opening {}", log.display()))?;
        command
            .current_dir(&group.directory)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(group.id());
        let state = State {
            command,
            child: None,
            ended: None,
        };
        Ok(Process {
            name: name.to_owned(),
            log,
            group: group.clone(),
            state: Mutex::new(state),
        })
    }

    pub fn start(&self) -> Result<()> {
        if self.is_running() {
            bail!("{} is running already", self.name);
        }
        let mut state = lock(&self.state);
        let child = state.command.spawn();
        state.child = Some(child.with_context(|| {
            format!(
                "starting {} ({})",
                self.name,
                state.command.get_program().to_string_lossy()
            )
        })?);
        state.ended = None;
        Ok(())
    }

    /// `kill -9`, and waits until the process is gone. Nothing happens when it is gone already.
    pub fn kill(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if let Some(mut child) = state.child.take() {
            child
                .kill()
                .with_context(|| format!("killing {}", self.name))?;
            state.ended = Some(child.wait()?);
        }
        Ok(())
    }

    /// Asks the process to end (SIGTERM) and waits for it.
    pub async fn terminate(&self, deadline: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.ended(deadline).await
    }

    /// Waits until the process has ended by itself.
    pub async fn ended(&self, deadline: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        while self.is_running() {
            if started.elapsed() > deadline {
                bail!(
                    "{} is still running after {deadline:?}; {}",
                    self.name,
                    self.log_tail()
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        lock(&self.state)
            .ended
            .with_context(|| format!("{} was never started", self.name))
    }

    /// Waits until `probe` succeeds. Fails at once when the process ends before.
    pub async fn ready(
        &self,
        deadline: Duration,
        mut probe: impl AsyncFnMut() -> Result<()>,
    ) -> Result<()> {
        let what = format!("{} is ready", self.name);
        let waited = wait::until(&what, deadline, async || match self.check() {
            Err(ended) => Ok(Err(ended)),
            Ok(()) => probe().await.map(Ok),
        });
        waited.await.with_context(|| self.log_tail())?
    }

    /// SIGSTOP: the process keeps its connections and answers nothing.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT, after [`Process::freeze`].
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let state = lock(&self.state);
        let child = state
            .child
            .as_ref()
            .with_context(|| format!("{} is not running", self.name))?;
        kill_process(Pid::from_child(child), signal)
            .with_context(|| format!("sending signal {} to {}", signal.as_raw(), self.name))
    }

    pub fn is_running(&self) -> bool {
        let mut state = lock(&self.state);
        if let Some(ended) = state
            .child
            .as_mut()
            .and_then(|child| child.try_wait().ok().flatten())
        {
            state.child = None;
            state.ended = Some(ended);
        }
        state.child.is_some()
    }

    /// The process id, while the process runs.
    pub fn id(&self) -> Option<u32> {
        lock(&self.state).child.as_ref().map(Child::id)
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Fails with the end of the log if the process is not running.
    pub fn check(&self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let how = match lock(&self.state).ended {
            Some(status) => format!("{} has ended ({status})", self.name),
            None => format!("{} was never started", self.name),
        };
        Err(anyhow!("{how}; {}", self.log_tail()))
    }

    /// The last lines of the log and its path.
    pub fn log_tail(&self) -> String {
        const BYTES: u64 = 3000;
        let mut tail = Vec::new();
        let read = File::open(&self.log).and_then(|mut log| {
            let length = log.metadata()?.len();
            log.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
            log.read_to_end(&mut tail)
        });
        match read {
            Ok(_) => format!(
                "{} ends with:\n{}",
                self.log.display(),
                String::from_utf8_lossy(&tail)
            ),
            Err(error) => format!("{} cannot be read: {error}", self.log.display()),
        }
    }

    /// Whether the log has `text` anywhere.
    pub fn log_contains(&self, text: &str) -> bool {
        fs::read(&self.log).is_ok_and(|log| String::from_utf8_lossy(&log).contains(text))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.group.left_running.load(Ordering::SeqCst) {
            let _ = self.kill();
        }
    }
}

/// A poisoned lock is no reason to leave processes behind: every state of these structs is usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
