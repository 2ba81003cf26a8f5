//! Whether kernel programs may be loaded here.

mod not_tried;

pub(crate) use not_tried::not_tried;

/// The reason why not, if so. Asked by having runs counted, which takes CAP_SYS_ADMIN: who has it may load, too.
pub(crate) fn missing() -> Option<std::io::Error> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime).err().map(|error| error.io_error)
}
