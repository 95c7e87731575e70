//! Standard input and output, without a thread pool in between where the system allows it.
//!
//! An editor starts an agent with pipes or sockets; those are read and written as soon as they are ready. A file or a
//! terminal is always "ready", so there tokio's blocking threads do the work.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::FileTypeExt as _, net},
    },
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{UnixStream, unix::pipe},
};

type Input = Box<dyn AsyncRead + Send + Unpin>;
type Output = Box<dyn AsyncWrite + Send + Unpin>;

pub(crate) fn input() -> io::Result<Input> {
    let fd = io::stdin().as_fd().try_clone_to_owned()?;
    let file = File::from(fd);
    let kind = file.metadata()?.file_type();
    Ok(if kind.is_fifo() {
        Box::new(pipe::Receiver::from_owned_fd(OwnedFd::from(file))?)
    } else if kind.is_socket() {
        Box::new(socket(file)?)
    } else {
        Box::new(tokio::io::stdin())
    })
}

pub(crate) fn output() -> io::Result<Output> {
    let fd = io::stdout().as_fd().try_clone_to_owned()?;
    let file = File::from(fd);
    let kind = file.metadata()?.file_type();
    Ok(if kind.is_fifo() {
        Box::new(pipe::Sender::from_owned_fd(OwnedFd::from(file))?)
    } else if kind.is_socket() {
        Box::new(socket(file)?)
    } else {
        Box::new(tokio::io::stdout())
    })
}

fn socket(file: File) -> io::Result<UnixStream> {
    let socket = net::UnixStream::from(OwnedFd::from(file));
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
