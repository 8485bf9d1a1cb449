"""Monitoring: Cacti, Icinga Web 2, Zabbix, ZoneMinder, NagVis, phpSysInfo."""

import application
import comparison
import database
from wikis import PASSWORD, PERSON


class Cacti(application.Application):
    """With MariaDB."""

    key = "cacti"
    packages = ("cacti", "php8.2-snmp", "php8.2-gmp", "php8.2-ldap")
    root = "/usr/share/cacti/site"
    state = ("/var/lib/cacti", "/var/log/cacti")
    uses_database = True
    starts = (
        "/",
        "/index.php",
        "/graph_view.php",
        "/include/",
        "/images/",
        "/auth_login.php",
        "/help.php",
        "/include/js/jquery.js",
        "/formats/",
        "/CHANGELOG",
        "/docs/",
        "/remote_agent.php",
    )
    refused = ("/scripts/query_unix_partitions.pl", "/mibs/x.txt")

    def set_up(self):
        database.create("cacti")
        with open("/etc/cacti/debian.php", encoding="utf-8") as file:
            lines = [
                line for line in file if not line.startswith(("$database_password", "$url_path"))
            ]
        end = f"$database_password = '{database.PASSWORD}';\n$url_path = '/';\n?>"
        application.write("/etc/cacti/debian.php", "".join(lines).replace("?>", end))
        database.load("cacti", "/usr/share/cacti/conf_templates/cacti.sql")
        version = self.version().partition("+")[0]
        database.run(f"UPDATE version SET cacti = '{version}'", "cacti")
        database.run(
            "UPDATE user_auth SET password = MD5('admin'), must_change_password = '' "
            "WHERE username = 'admin'",
            "cacti",
        )

    def use(self, session):
        page = session.get("/index.php")
        session.submit(page, {"login_username": "admin", "login_password": "admin"})
        comparison.look_around(
            session, ["/index.php", "/host.php", "/graph_view.php", "/data_input.php"]
        )
        page = session.get("/tree.php?action=edit")
        session.submit(page, {"name": "Guests"})
        session.get("/graph_xport.php")
        session.get("/logout.php")


class IcingaWeb(application.Application):
    """With MariaDB, and Zend's router behind a front controller."""

    key = "icingaweb2"
    packages = ("icingaweb2", "php8.2-intl")
    root = "/usr/share/icingaweb2/public"
    nginx = "location / { try_files $uri $uri/ /index.php$is_args$args; }"
    state = ("/etc/icingaweb2",)
    uses_database = True
    starts = (
        "/",
        "/authentication/login",
        "/css/icinga.min.css",
        "/js/icinga.dev.js",
        "/setup",
        "/img/favicon.png",
        "/no/such/page",
        "/css/vendor/",
        "/health",
        "/dashboard",
    )

    def set_up(self):
        # What the makers' configuration of Apache has.
        application.write(
            f"{self.root}/.htaccess",
            """RewriteEngine on
RewriteBase /
RewriteCond %{REQUEST_FILENAME} -s [OR]
RewriteCond %{REQUEST_FILENAME} -l [OR]
RewriteCond %{REQUEST_FILENAME} -d
RewriteRule ^.*$ - [NC,L]
RewriteRule ^.*$ index.php [NC,L]
""",
        )
        database.create("icingaweb")
        database.load("icingaweb", "/usr/share/icingaweb2/schema/mysql.schema.sql")
        hashed = application.run(
            "php", "-r", f"echo password_hash('{PASSWORD}', PASSWORD_BCRYPT, ['cost' => 4]);"
        )
        database.run(
            f"INSERT INTO icingaweb_user (name, active, password_hash) VALUES ('{PERSON}', 1, '{hashed}')",
            "icingaweb",
        )
        resource = f"""[db]
type = "db"
db = "mysql"
host = "localhost"
dbname = "icingaweb"
username = "icingaweb"
password = "{database.PASSWORD}"
"""
        application.write("/etc/icingaweb2/resources.ini", resource)
        application.write(
            "/etc/icingaweb2/config.ini",
            '[global]\nconfig_backend = "db"\nconfig_resource = "db"\n[logging]\nlog = "none"\n',
        )
        application.write(
            "/etc/icingaweb2/authentication.ini", '[db]\nbackend = "db"\nresource = "db"\n'
        )
        application.write(
            "/etc/icingaweb2/roles.ini", f'[all]\nusers = "{PERSON}"\npermissions = "*"\n'
        )

    def use(self, session):
        page = session.get("/authentication/login?_checkCookie=1")
        session.get("/authentication/login?_checkCookie=1")
        page = session.get("/authentication/login")
        session.submit(page, {"username": PERSON, "password": PASSWORD, "btn_submit": "Login"})
        comparison.look_around(
            session, ["/account", "/config/general", "/config/module?name=setup", "/about"]
        )
        page = session.get("/announcements/new")
        changes = {
            "message": "Guests are welcome",
            "start": "2026-01-01T00:00:00",
            "end": "2036-01-01T00:00:00",
            "btn_submit": "Create",
        }
        session.submit(page, changes)
        session.get("/announcements")
        session.get("/authentication/logout")


class Zabbix(application.Application):
    """Its frontend, before its installation."""

    key = "zabbix"
    packages = ("zabbix-frontend-php", "php8.2-bcmath")
    root = "/usr/share/zabbix"
    starts = (
        "/",
        "/setup.php",
        "/index.php",
        "/assets/styles/blue-theme.css",
        "/js/",
        "/zabbix.php?action=x",
        "/api_jsonrpc.php",
        "/robots.txt",
        "/browserwarning.php",
        "/jsLoader.php?lang=en_US",
        "/audio/",
    )
    refused = (
        "/app/controllers/CControllerDashboardList.php",
        "/conf/zabbix.conf.php.example",
        "/local/conf/x.txt",
        "/include/config.inc.php",
        "/include/classes/core/ZBase.php",
    )

    def set_up(self):
        pass

    def use(self, session):
        page = session.get("/setup.php")
        session.submit(page, {"next[0]": "Next step"}, form="setup-form")
        session.get("/setup.php")


class PhpSysInfo(application.Application):
    """Reads /proc."""

    key = "phpsysinfo"
    packages = ("phpsysinfo",)
    root = "/usr/share/phpsysinfo"
    nginx = """location ~ ^/(data|includes)/ { deny all; }
        location / { try_files $uri $uri/ =404; }"""
    starts = (
        "/index.php?disp=static",
        "/index.php?disp=dynamic",
        "/js.php?name=jquery.timers",
        "/gfx/",
        "/templates/phpsysinfo.css",
        "/language/language.php?lang=en",
        "/phpsysinfo.xslt",
        "/read_config.php",
    )
    refused = ("/data/languages.ini", "/data/osnames.ini")


class ZoneMinder(application.Application):
    """With MariaDB."""

    key = "zoneminder"
    packages = ("zoneminder",)
    root = "/usr/share/zoneminder/www"
    state = ("/var/cache/zoneminder",)
    uses_database = True
    starts = (
        "/",
        "/index.php",
        "/?view=login",
        "/skins/classic/css/base/skin.css",
        "/js/",
        "/api/host/getVersion.json",
        "/api/",
        "/robots.txt",
        "/graphics/",
        "/skins/",
        "/includes/",
        "/fonts/",
    )

    def set_up(self):
        database.create("zm")
        application.write(
            "/etc/zm/conf.d/90-house.conf",
            f"ZM_DB_HOST=localhost\nZM_DB_NAME=zm\nZM_DB_USER=zm\nZM_DB_PASS={database.PASSWORD}\n",
        )
        application.run("chgrp", "www-data", "/etc/zm/zm.conf")
        database.load("zm", "/usr/share/zoneminder/db/zm_create.sql")
        database.run(
            "UPDATE Config SET Value = '1' WHERE Name IN ('ZM_OPT_USE_AUTH', 'ZM_SHOW_PRIVACY')",
            "zm",
        )
        database.run("UPDATE Config SET Value = '0' WHERE Name = 'ZM_SHOW_PRIVACY'", "zm")
        database.run("UPDATE Config SET Value = 'secret' WHERE Name = 'ZM_AUTH_HASH_SECRET'", "zm")

    def use(self, session):
        page = session.get("/?view=login")
        session.submit(page, {"username": "admin", "password": "admin"})
        comparison.look_around(
            session, ["/?view=console", "/?view=options", "/?view=log", "/?view=filter"]
        )
        session.get("/api/host/login.json?user=admin&pass=admin")
        session.get("/?view=logout")


class NagVis(application.Application):
    """Its pages without a login: with PHP 8.2 the package shows an error of its own."""

    key = "nagvis"
    packages = ("nagvis",)
    root = "/usr/share/nagvis/share"
    state = ("/var/lib/nagvis", "/var/cache/nagvis", "/etc/nagvis")
    starts = (
        "/",
        "/index.php",
        "/frontend/nagvis-js/index.php",
        "/config.php",
        "/userfiles/",
        "/frontend/",
        "/frontend/nagvis-js/css/views.css",
        "/server/core/ajax_handler.php",
        "/docs/en_US/index.html",
    )

    def set_up(self):
        with open("/etc/nagvis/nagvis.ini.php", encoding="utf-8") as file:
            text = file.read()
        if "/nagvis/nagvis" not in text:
            text = text.replace(';htmlbase="/nagvis"', 'htmlbase=""').replace(
                'htmlbase="/nagvis"', 'htmlbase=""'
            )
        application.write("/etc/nagvis/nagvis.ini.php", text)
