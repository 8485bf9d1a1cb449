"""Mail and identity: Roundcube, Postfix Admin, SimpleSAMLphp."""

import os
import re
import shutil

import application
import visitor
import comparison
import database
import processes
from wikis import PASSWORD, PERSON, PICTURE


class Mail:
    """Dovecot with one mailbox, for Roundcube."""

    CONF, HOME = "/run/applications-dovecot.conf", "/run/applications-mail"
    running = []

    @classmethod
    def create(cls):
        """Starts Dovecot with one mail in the inbox."""
        cls.stop()
        shutil.rmtree(cls.HOME, ignore_errors=True)
        for name in ("new", "cur", "tmp"):
            os.makedirs(f"{cls.HOME}/{name}")
        mail = (
            "From: Anna <anna@house.test>\nTo: keeper@house.test\nSubject: A room\n"
            "Date: Fri, 06 Nov 2026 08:49:37 +0000\nMessage-ID: <1@house.test>\nMIME-Version: 1.0\n"
            "Content-Type: text/plain; charset=utf-8\n\nIs a room free?\n"
        )
        application.write(f"{cls.HOME}/cur/1730882977.M1P1.house:2,", mail)
        os.utime(f"{cls.HOME}/cur/1730882977.M1P1.house:2,", (1730882977, 1730882977))
        application.run("chown", "-R", "mail:mail", cls.HOME)
        application.write(
            cls.CONF,
            f"""protocols = imap
listen = 127.0.0.1
base_dir = /run/applications-dovecot
log_path = /run/applications-dovecot.log
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{cls.HOME}
mail_uid = mail
mail_gid = mail
first_valid_uid = 1
first_valid_gid = 1
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid=mail gid=mail home={cls.HOME}
}}
service imap-login {{
  inet_listener imap {{
    port = 143
  }}
}}
""",
        )
        with open("/run/applications-dovecot-start.log", "ab") as log:
            cls.running.append(processes.start(["dovecot", "-F", "-c", cls.CONF], log))

    @classmethod
    def stop(cls):
        """Ends Dovecot."""
        while cls.running:
            processes.stop(cls.running.pop())


class Roundcube(application.Application):
    """With MariaDB and Dovecot, on its own `.htaccess`."""

    key = "roundcube"
    packages = ("roundcube", "roundcube-mysql", "dovecot-imapd")
    root = "/srv/roundcube"
    nginx = """location ~ ^/(README|INSTALL|LICENSE|CHANGELOG|UPGRADING|bin|SQL|config|temp|logs)($|/) { deny all; }
        location ~ ^/program/(include|lib|localization|steps) { deny all; }
        location / { try_files $uri $uri/ =404; }"""
    uses_database = True
    state = ("/srv/roundcube/temp", "/srv/roundcube/logs")
    starts = (
        "/",
        "/?_task=login",
        "/skins/elastic/",
        "/program/js/app.min.js",
        "/plugins/",
        "/favicon.ico",
        "/skins/elastic/images/favicon.ico",
        "/?_task=mail",
        "/program/",
        "/installer/",
        "/.well-known/x",
    )
    refused = (
        "/config/config.inc.php",
        "/logs/errors.log",
        "/temp/x.txt",
        "/SQL/mysql.initial.sql",
        "/bin/msgexport.sh",
        "/program/include/iniset.php",
        "/program/lib/Roundcube/bootstrap.php",
        "/program/localization/index.inc",
        "/composer.json",
        "/vendor/secret.txt",
        "/README.md",
        "/nodot",
    )

    def set_up(self):
        database.create("roundcube")
        shutil.rmtree(self.root, ignore_errors=True)
        # The tree of the makers' archive, which Debian spreads over several folders.
        shutil.copytree("/usr/share/roundcube", self.root, ignore_dangling_symlinks=True)
        shutil.copytree("/etc/roundcube", f"{self.root}/config", dirs_exist_ok=True)
        shutil.copy("/etc/roundcube/htaccess", f"{self.root}/.htaccess")
        for name in ("temp", "logs", "vendor"):
            os.makedirs(f"{self.root}/{name}", exist_ok=True)
        path = f"{self.root}/program/include/iniset.php"
        with open(path, encoding="utf-8") as file:
            text = file.read().replace("/var/lib/roundcube/", f"{self.root}/")
        application.write(path, text)
        for name in (
            "logs/errors.log",
            "temp/x.txt",
            "vendor/secret.txt",
            "README.md",
            "nodot",
            "composer.json",
        ):
            application.write(f"{self.root}/{name}", "SECRET")
        application.write(
            f"{self.root}/config/config.inc.php",
            f"""<?php
$config = [];
$config['db_dsnw'] = 'mysql://roundcube:{database.PASSWORD}@localhost/roundcube';
$config['imap_host'] = '127.0.0.1:143';
$config['smtp_host'] = '127.0.0.1:25';
$config['des_key'] = 'rcmail-!24ByteDESkey*Str';
$config['product_name'] = 'House';
$config['plugins'] = [];
$config['skin'] = 'elastic';
$config['enable_spellcheck'] = false;
$config['temp_dir'] = '{self.root}/temp';
$config['log_dir'] = '{self.root}/logs';
""",
        )
        application.give([f"{self.root}/config"])
        database.load("roundcube", "/usr/share/roundcube/SQL/mysql.initial.sql")

    def use(self, session):
        Mail.create()
        page = session.get("/?_task=login")
        for _ in range(3):
            page = session.submit(page, {"_user": PERSON, "_pass": "secret"})
            if "_task=logout" in page.text or "rcmail" in page.text and "_user" not in page.text:
                break
            page = session.get("/?_task=login")
        comparison.look_around(session, ["/?_task=mail", "/?_task=settings", "/?_task=addressbook"])
        page = session.get("/?_task=mail&_mbox=INBOX")
        found = re.search(r'"request_token":"([^"]+)"', page.text)
        token = found.group(1) if found else ""
        ajax = [("X-Requested-With", "XMLHttpRequest"), ("X-Roundcube-Request", token)]
        session.get("/?_task=mail&_action=list&_mbox=INBOX&_remote=1", ajax)
        session.get("/?_task=mail&_mbox=INBOX&_uid=1&_action=show")
        session.get("/?_task=mail&_mbox=INBOX&_uid=1&_action=viewsource&_save=1")
        page = session.get("/?_task=addressbook&_action=import&_framed=1")
        card = b"BEGIN:VCARD\r\nVERSION:3.0\r\nFN:Anna\r\nN:;Anna;;;\r\nEMAIL:anna@house.test\r\nEND:VCARD\r\n"
        session.submit(
            page, {"_replace": "1"}, [("_file[]", "a.vcf", "text/vcard", card)], form="_token"
        )
        session.get(f"/?_task=addressbook&_action=export&_source=0&_token={token}")
        page = session.get("/?_task=mail&_action=compose")
        compose = re.search(r"_id=([0-9a-f]+)", page.text + str(page.headers) + session.at)
        if compose:
            session.post(
                f"/?_task=mail&_action=upload&_id={compose.group(1)}&_uploadid=upload1&_remote=1",
                [("_token", token)],
                [("_attachments[]", "p.png", "image/png", PICTURE)],
            )
        session.get(f"/?_task=logout&_token={token}")
        Mail.stop()


class PostfixAdmin(application.Application):
    """With MariaDB."""

    key = "postfixadmin"
    packages = ("postfixadmin", "php8.2-imap")
    root = "/usr/share/postfixadmin/public"
    uses_database = True
    state = ("/var/cache/postfixadmin",)
    starts = (
        "/",
        "/login.php",
        "/setup.php",
        "/users/login.php",
        "/css/",
        "/images/",
        "/xmlrpc.php",
        "/css/default.css",
    )

    def set_up(self):
        database.create("postfixadmin")
        hashed = application.run(
            "php",
            "-r",
            "echo password_hash('setup pass phrase 12', PASSWORD_BCRYPT, ['cost' => 4]);",
        )
        application.write(
            "/etc/postfixadmin/config.local.php",
            f"""<?php
$CONF['configured'] = true;
$CONF['database_type'] = 'mysqli';
$CONF['database_host'] = 'localhost';
$CONF['database_user'] = 'postfixadmin';
$CONF['database_password'] = '{database.PASSWORD}';
$CONF['database_name'] = 'postfixadmin';
$CONF['setup_password'] = '{hashed}';
$CONF['emailcheck_resolve_domain'] = 'NO';
$CONF['encrypt'] = 'md5crypt';
?>""",
        )
        application.run("php", f"{self.root}/upgrade.php")
        application.run(
            "bash",
            "/usr/share/postfixadmin/scripts/postfixadmin-cli",
            "admin",
            "add",
            "keeper@house.test",
            "--password",
            "secret12",
            "--password2",
            "secret12",
            "--superadmin",
            "1",
        )

    def use(self, session):
        page = session.get("/login.php")
        session.submit(
            page, {"fUsername": "keeper@house.test", "fPassword": "secret12", "submit": "Login"}
        )
        comparison.look_around(
            session,
            ["/main.php", "/list.php?table=admin", "/list.php?table=domain"],
            leaves=re.compile("login|logout|setup|delete|active"),
        )
        page = session.get("/edit.php?table=domain")
        session.submit(page, {"value[domain]": "guests.test", "submit": "Add Domain"})
        page = session.get("/edit.php?table=mailbox&domain=guests.test")
        session.submit(
            page,
            {
                "value[local_part]": "anna",
                "value[password]": "secret12",
                "value[password2]": "secret12",
                "value[name]": "Anna",
                "submit": "Add",
            },
        )
        session.get("/list-virtual.php?domain=guests.test")
        session.get("/list.php?table=domain&output=csv")
        session.get("/login.php?logout=1")


class SimpleSaml(application.Application):
    """Behind /simplesaml, with path info in each module's URL."""

    key = "simplesamlphp"
    packages = ("simplesamlphp", "php8.2-ldap")
    root = "/usr/share/simplesamlphp/www"
    starts = (
        "/",
        "/index.php",
        "/module.php/core/frontpage_welcome.php",
        "/module.php/core/frontpage_config.php",
        "/module.php/core/login",
        "/module.php/core/frontpage_auth.php",
        "/resources/default.css",
        "/module.php/core/loginuserpass.php",
        "/saml2/idp/metadata.php",
        "/errorreport.php",
        "/admin/hostnames.php",
        "/module.php/saml/sp/metadata.php/default-sp",
        "/module.php/none/x.php",
        "/logout.php",
        "/assets/",
    )

    def set_up(self):
        path = "/etc/simplesamlphp/config.php"
        with open(path, encoding="utf-8") as file:
            text = file.read()
        text = text.replace(
            "'baseurlpath' => 'simplesamlphp/'", f"'baseurlpath' => 'http://{visitor.HOST}/'"
        )
        text = text.replace("'logging.handler' => 'syslog'", "'logging.handler' => 'errorlog'")
        text = text.replace("'session.cookie.secure' => true", "'session.cookie.secure' => false")
        text = text.replace("'admin.checkforupdates' => true", "'admin.checkforupdates' => false")
        application.write(path, text)
        application.write(
            "/var/lib/simplesamlphp/secrets.inc.php",
            "<?php\n$config['auth.adminpassword'] = 'secret';\n$config['secretsalt'] = 'a salt';\n",
        )
        for name in ("/var/log/stats", "/tmp/simplesaml"):
            os.makedirs(name, exist_ok=True)
            application.give([name])

    def use(self, session):
        page = session.get(
            "/module.php/core/login-admin.php?ReturnTo=http%3A%2F%2Fapp.test%2Findex.php"
        )
        session.submit(page, {"password": "secret"})
        comparison.look_around(
            session,
            ["/module.php/core/frontpage_config.php"],
            leaves=re.compile("phpinfo|logout|language="),
        )
        page = session.get("/admin/metadata-converter.php")
        session.submit(
            page, {"xmldata": "<EntityDescriptor/>"}, [("xmlfile", "x.xml", "text/xml", b"<x/>")]
        )
        session.get("/admin/hostnames.php")
        session.get("/logout.php")
