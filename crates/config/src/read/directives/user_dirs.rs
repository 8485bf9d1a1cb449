//! The setting `private_dir`.

use crate::model::config::Config;
use crate::model::private_dir::PrivateDir;
use crate::read::directive::{Directive, Needs, Preset};

/// Where users of pools have folders of their own.
pub(super) const PRIVATE_DIR: Directive<Config> = Directive {
    name: "private_dir",
    default: Preset::Words(
        "`/var/lib/maitred/users` if pools run as several users; otherwise `\"off\"`",
    ),
    takes: "the path of a directory, or \"off\"",
    needs: Needs::NewZygote,
    doc: "The directory in which each user of pools gets a folder that no other user can read, \
          named by the user's number. It becomes `sys_temp_dir`, `upload_tmp_dir`, `TMPDIR` and \
          (with the handler `files`) `session.save_path` of the user's pools, unless php.ini or \
          the pool sets these; old sessions are then deleted by PHP (`session.gc_probability` is \
          1 instead of 0). A pool with an `open_basedir` that excludes the folder has its \
          temporary files elsewhere, a pool with a `chroot` everything. `\"off\"` leaves all \
          pools with the folders of php.ini, which other users may share. The directory must \
          belong to root, and only root may write to it. A pool whose folder cannot be made uses \
          those of php.ini, and the log says so; if `private_dir` is set, it does not start. Used \
          only if the server is started as root, and not by `maitred fpm`.",
    example: "\"off\"",
    read: |config, value| {
        config.private_dir = match value.text()? {
            "off" => PrivateDir::Off,
            _ => PrivateDir::At(value.directory()?),
        };
        Ok(())
    },
};
