//! The settings for starting PHP, as C reads them.

use std::ffi::{CString, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use crate::engine::StartError;
use crate::settings::Settings;

#[repr(C)]
#[derive(Debug)]
pub(super) struct RawIniValue {
    name: *const c_char,
    value: *const c_char,
    admin: bool,
    /// Written by C: 0, or why PHP has rejected it.
    pub(super) fate: c_int,
}

/// PHP has no such directive.
pub(super) const UNKNOWN: c_int = 1;
/// The directive rejects the value.
pub(super) const REFUSED: c_int = 2;

#[repr(C)]
pub(super) struct RawSettings {
    sapi_name: *const c_char,
    executable: *const c_char,
    ini_path: *const c_char,
    ini_entries: *const c_char,
    preload: *const c_char,
    values: *mut RawIniValue,
    value_count: usize,
    no_ini_files: bool,
    fpm: bool,
    mode: c_int,
}

/// The strings of [`Settings`] for C, for the lifetime of the process.
pub(super) struct SettingTexts {
    sapi_name: CString,
    executable: Option<CString>,
    ini_path: Option<CString>,
    ini_entries: CString,
    preload: Option<CString>,
    values: Vec<(CString, CString, bool)>,
}

impl SettingTexts {
    pub(super) fn new(settings: &Settings) -> Result<Self, StartError> {
        let values = settings.values.iter().map(|value| {
            let name = c_string(value.name.as_bytes(), &value.name)?;
            Ok((name, c_string(value.value.as_bytes(), &value.name)?, value.admin))
        });
        let path = |path: &OsStr, setting| c_string(path.as_bytes(), setting);
        Ok(Self {
            sapi_name: c_string(settings.sapi_name.as_bytes(), "sapi_name")?,
            executable: std::env::current_exe()
                .ok()
                .and_then(|executable| CString::new(executable.as_os_str().as_bytes()).ok()),
            ini_path: settings
                .ini_path
                .as_ref()
                .map(|ini_path| path(ini_path.as_os_str(), "php_ini"))
                .transpose()?,
            ini_entries: c_string(settings.ini_entries().as_bytes(), "php_value")?,
            preload: settings
                .preload_script()
                .map(|script| c_string(&script, "preload"))
                .transpose()?,
            values: values.collect::<Result<_, StartError>>()?,
        })
    }

    /// The values for C.
    pub(super) fn values(&self) -> Vec<RawIniValue> {
        let values = self.values.iter();
        let raw = values.map(|(name, value, admin)| RawIniValue {
            name: name.as_ptr(),
            value: value.as_ptr(),
            admin: *admin,
            fate: 0,
        });
        raw.collect()
    }

    /// All settings for C, with `values`; both must outlive the result.
    pub(super) fn raw(&self, settings: &Settings, values: &mut [RawIniValue]) -> RawSettings {
        RawSettings {
            sapi_name: self.sapi_name.as_ptr(),
            executable: pointer(self.executable.as_ref()),
            ini_path: pointer(self.ini_path.as_ref()),
            ini_entries: self.ini_entries.as_ptr(),
            preload: pointer(self.preload.as_ref()),
            values: values.as_mut_ptr(),
            value_count: values.len(),
            no_ini_files: settings.no_ini_files,
            fpm: settings.fpm,
            mode: settings.mode as c_int,
        }
    }
}

fn c_string(bytes: &[u8], setting: &str) -> Result<CString, StartError> {
    CString::new(bytes).map_err(|_| StartError::Nul { setting: setting.to_owned() })
}

fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(ptr::null(), |text| text.as_ptr())
}

/// `PHP_INI_SCAN_DIR` is the only way to set the folder of additional ini files; scripts must not
/// see it afterwards.
pub(super) struct ScanDir {
    before: Option<Option<OsString>>,
}

const SCAN_DIR: &str = "PHP_INI_SCAN_DIR";

impl ScanDir {
    pub(super) fn set(value: Option<&OsStr>) -> Self {
        let Some(value) = value else {
            return Self { before: None };
        };
        let before = std::env::var_os(SCAN_DIR);
        // SAFETY: `Engine::start` asks its callers to start PHP before there are threads.
        unsafe { std::env::set_var(SCAN_DIR, value) };
        Self { before: Some(before) }
    }

    pub(super) fn restore(self) {
        match self.before {
            None => {}
            // SAFETY: as in `set`.
            Some(Some(before)) => unsafe { std::env::set_var(SCAN_DIR, before) },
            // SAFETY: as in `set`.
            Some(None) => unsafe { std::env::remove_var(SCAN_DIR) },
        }
    }
}
