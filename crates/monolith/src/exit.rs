//! Exit codes, by which a script tells failures apart.

use monolith_abi::fault::FaultDump;
use monolith_engine::EngineError;
use monolith_harness::HarnessError;
use std::fmt;
use std::process::ExitCode;

/// Why the program ended. The manual documents the numbers; they do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Something failed.
    Failure = 1,
    /// The command was used wrongly.
    Usage = 2,
    /// None of the requested engines can run here.
    NoEngine = 3,
    /// The model or one of its files is missing.
    NoModel = 4,
    /// A gate failed, or a required gate has not passed.
    Gate = 5,
    /// The hub or the network failed.
    Remote = 6,
    /// Ctrl-C ended the command before it had a result.
    Interrupted = 130,
}

/// The table of exit codes, for `--help` and the manual.
pub const TABLE: &str = "Exit codes:
  0  success
  1  failure
  2  wrong usage
  3  no usable engine: no GPU, driver or compiled kernel for the requested engine
  4  the model or one of its files is missing
  5  a gate failed, or a required gate has not passed
  6  the remote end (the hub, or the network to it) failed
  7  reserved for a spent budget
  130  ended by Ctrl-C before there was a result";

/// An error with its exit code.
#[derive(Debug)]
pub struct Exit {
    code: Code,
    error: anyhow::Error,
}

impl Exit {
    /// Returns the error with this code.
    pub fn new(code: Code, error: impl Into<anyhow::Error>) -> Exit {
        Exit { code, error: error.into() }
    }

    /// Returns an error with this code and message.
    pub fn message(code: Code, message: impl fmt::Display) -> Exit {
        Exit { code, error: anyhow::anyhow!("{message}") }
    }

    /// Returns the code.
    #[cfg(test)]
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the code as the process's exit status.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code as u8)
    }

    /// Returns the fault record, if the error is a step that timed out.
    pub fn fault(&self) -> Option<&FaultDump> {
        let engine = match self.error.downcast_ref::<HarnessError>() {
            Some(HarnessError::Engine(error)) => Some(error),
            _ => self.error.downcast_ref::<EngineError>(),
        };
        match engine {
            Some(EngineError::KernelFault(dump)) => Some(dump),
            _ => None,
        }
    }

    /// Returns whether the reader closed our output: the program then ends without a message.
    pub fn is_broken_pipe(&self) -> bool {
        self.error.chain().any(|cause| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
        })
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Most messages of our libraries include their cause: print no text twice.
        let mut said = String::new();
        for cause in self.error.chain().map(ToString::to_string) {
            if !said.contains(&cause) {
                let joint = if said.is_empty() { "" } else { ": " };
                said.push_str(joint);
                said.push_str(&cause);
            }
        }
        out.write_str(&said)
    }
}

impl<E: Into<anyhow::Error>> From<E> for Exit {
    fn from(error: E) -> Exit {
        Exit::new(Code::Failure, error)
    }
}

/// Gives an error its exit code.
pub trait OrExit<T> {
    /// Returns the value, or the error with this code.
    ///
    /// # Errors
    /// The error itself.
    fn or_exit(self, code: Code) -> Result<T, Exit>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, code: Code) -> Result<T, Exit> {
        self.map_err(|error| Exit::new(code, error))
    }
}
