"""What an application is to the comparison: packages, set-up, rules, and a person's use of it."""

import os
import shutil
import subprocess

import database
import servers

SAVED = "/run/applications-saved"
SESSIONS = "/var/lib/php/sessions"


class Application:
    """The base of every application; the fields say what a packaged one usually has."""

    key = ""
    packages = ()  # the first one's version is the application's
    root = ""
    nginx = ""  # the rules of the server block; empty: files, folders, scripts
    apache = ""  # lines besides AllowOverride All
    maitred = ""  # the site's settings, where there is a preset
    state = ()  # folders that use changes
    uses_database = False
    starts = ("/",)
    pages, assets = 20, 12  # at most this many are compared
    refused = ()  # paths that Apache refuses by the application's own .htaccess files

    def set_up(self):
        """Makes a usable installation in the private root, as root."""

    def use(self, session):
        """What a person does: logs in, creates, uploads, downloads, logs out."""

    def version(self):
        """The version of the package."""
        shown = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", self.packages[0]],
            capture_output=True,
            text=True,
            check=False,
        )
        return shown.stdout or "missing"

    def folders(self):
        """The folders that hold the state."""
        return [SESSIONS, *self.state, *([database.DATA] if self.uses_database else [])]

    def save(self):
        """Remembers the state, and gives it to the web server's user."""
        shutil.rmtree(SAVED, ignore_errors=True)
        give(self.state)
        if self.uses_database:
            database.stop()
        for folder in self.folders():
            if os.path.isdir(folder):
                copy(folder, SAVED + folder)
        if self.uses_database:
            database.start()

    def restore(self):
        """Puts the state back."""
        if self.uses_database:
            database.stop()
        for folder in self.folders():
            if os.path.isdir(SAVED + folder):
                empty(folder)
                copy(SAVED + folder, folder)
        if self.uses_database:
            database.start()


def run(*command, **options):
    """Runs a command; its output is in the error if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise servers.CannotStart(f"{command[0]} failed: {(done.stdout + done.stderr)[-1500:]}")
    return done.stdout


def give(folders):
    """Gives folders to the user that PHP runs as."""
    for folder in folders:
        run("chown", "-RL", f"{servers.USER}:{servers.USER}", folder)


def copy(folder, target):
    """Copies a folder with its owners and times."""
    os.makedirs(target, exist_ok=True)
    run("cp", "-a", folder + "/.", target)


def empty(folder):
    """Removes what is in a folder."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.remove(entry.path)


def write(path, text):
    """Writes a file of the installation."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.islink(path):
        os.remove(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
