"""Tools for databases and directories: phpMyAdmin, Adminer, phpLiteAdmin, phpLDAPadmin, LAM."""

import glob
import os
import shutil
import subprocess

import application
import comparison
import database
import processes

DUMP = b"CREATE TABLE guests (id INT PRIMARY KEY, name VARCHAR(40));\nINSERT INTO guests VALUES (1,'Anna'),(2,'Ben');\n"


class PhpMyAdmin(application.Application):
    """Over MariaDB."""

    key = "phpmyadmin"
    packages = ("phpmyadmin",)
    root = "/usr/share/phpmyadmin"
    state = ("/var/lib/phpmyadmin",)
    uses_database = True
    starts = (
        "/",
        "/index.php?route=/",
        "/doc/html/index.html",
        "/themes/",
        "/js/",
        "/libraries/",
        "/show_config_errors.php",
        "/url.php?url=https%3A%2F%2Fexample.com%2F",
        "/robots.txt",
    )
    refused = ("/libraries/common.inc.php", "/templates/list/item.twig", "/sql/create_tables.sql")

    def set_up(self):
        database.create("house")
        if not os.path.exists(f"{self.root}/libraries/.htaccess"):
            # As in the archive of the makers; Debian has the same rules in Apache's configuration.
            for name in ("libraries", "templates", "sql"):
                application.write(f"{self.root}/{name}/.htaccess", "Require all denied\n")

    def use(self, session):
        page = session.get("/index.php")
        session.submit(page, {"pma_username": "house", "pma_password": database.PASSWORD})
        comparison.look_around(
            session, ["/index.php?route=/", "/index.php?route=/database/structure&db=house"]
        )
        page = session.get("/index.php?route=/database/import&db=house")
        files = [("import_file", "house.sql", "application/sql", DUMP)]
        session.submit(page, {"format": "sql"}, files, form="import_file_form")
        session.get("/index.php?route=/database/structure&db=house")
        session.get("/index.php?route=/sql&db=house&table=guests&pos=0")
        page = session.get("/index.php?route=/database/export&db=house")
        session.submit(page, {"what": "sql"}, form="dump")
        page = session.get("/index.php?route=/database/sql&db=house")
        session.submit(page, {"sql_query": "SELECT * FROM guests", "SQL": "Go"})
        session.get("/index.php?route=/logout")


class Adminer(application.Application):
    """One script over MariaDB."""

    key = "adminer"
    packages = ("adminer",)
    root = "/srv/adminer"
    uses_database = True
    starts = (
        "/",
        "/?file=default.css&version=4.8.1",
        "/?file=functions.js&version=4.8.1",
        "/?file=favicon.ico&version=4.8.1",
        "/?server=localhost&username=x",
        "/adminer.css",
        "/none/",
    )

    def set_up(self):
        database.create("house")
        os.makedirs(self.root, exist_ok=True)
        shutil.copy("/usr/share/adminer/adminer.php", f"{self.root}/index.php")

    def use(self, session):
        session.get("/")
        login = {
            "driver": "server",
            "server": "localhost",
            "username": "house",
            "password": database.PASSWORD,
            "db": "house",
        }
        session.post("/", [(f"auth[{name}]", value) for name, value in login.items()])
        base = "/?server=localhost&username=house&db=house"
        comparison.look_around(session, [base])
        page = session.get(base + "&import=")
        session.submit(
            page,
            {"error_stops": "1"},
            [("sql_file[]", "house.sql", "text/plain", DUMP)],
            form="token",
        )
        session.get(base + "&select=guests")
        page = session.get(base + "&sql=")
        session.submit(page, {"query": "SELECT name FROM guests ORDER BY id"})
        page = session.get(base + "&dump=")
        session.submit(
            page, {"output": "file", "format": "csv", "tables[]": "guests", "data[]": "guests"}
        )
        page = session.get(base)
        session.submit(page, {"logout": "Logout"}, form="token")


class PhpLiteAdmin(application.Application):
    """One script over SQLite."""

    key = "phpliteadmin"
    packages = ("phpliteadmin",)
    root = "/usr/share/phpliteadmin"
    nginx = """index phpliteadmin.php;
        location / { try_files $uri $uri/ =404; }"""
    apache = "DirectoryIndex phpliteadmin.php"
    state = ("/var/lib/phpliteadmin",)
    starts = (
        "/phpliteadmin.php",
        "/phpliteadmin.php?resource=css",
        "/phpliteadmin.php?resource=javascript",
        "/phpliteadmin.php?resource=favicon",
        "/languages/",
        "/languages/lang_de.php",
        "/phpliteadmin.php/x",
    )

    def set_up(self):
        os.makedirs("/var/lib/phpliteadmin", exist_ok=True)
        application.empty("/var/lib/phpliteadmin")
        application.write(
            "/etc/phpliteadmin.config.php",
            "<?php\n$directory = '/var/lib/phpliteadmin';\n$password = 'secret';\n",
        )

    def use(self, session):
        page = session.get("/phpliteadmin.php")
        session.submit(page, {"password": "secret", "login": "Log In", "proc_login": "true"})
        page = session.get("/phpliteadmin.php")
        session.submit(page, {"new_dbname": "house"})
        comparison.look_around(
            session, ["/phpliteadmin.php?view=structure", "/phpliteadmin.php?view=sql"]
        )
        page = session.get("/phpliteadmin.php?view=sql")
        sql = "CREATE TABLE guests (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO guests VALUES (1, 'Anna')"
        session.submit(page, {"queryval": sql, "query": "Go"})
        session.get("/phpliteadmin.php?action=row_view&table=guests")
        page = session.get("/phpliteadmin.php?view=import")
        csv = b"INSERT INTO guests VALUES (3, 'Carl');\n"
        session.submit(
            page, {"import_type": "sql", "import": "Import"}, [("file", "f.sql", "text/plain", csv)]
        )
        page = session.get("/phpliteadmin.php?view=export")
        session.submit(page, {"export_type": "sql", "export": "Export"})


class Directory:
    """OpenLDAP's server with one tree, for the tools below."""

    DATA, CONF = "/run/applications-ldap", "/run/applications-slapd.conf"
    BASE, ADMIN, PASSWORD = "dc=house,dc=test", "cn=admin,dc=house,dc=test", "secret"
    running = []

    @classmethod
    def create(cls):
        """Starts an empty directory with its root and an organisational unit."""
        cls.stop()
        shutil.rmtree(cls.DATA, ignore_errors=True)
        os.makedirs(cls.DATA)
        schemas = "\n".join(
            f"include /etc/ldap/schema/{name}.schema"
            for name in ("core", "cosine", "nis", "inetorgperson")
        )
        application.write(
            cls.CONF,
            f"""{schemas}
pidfile {cls.DATA}/slapd.pid
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
suffix "{cls.BASE}"
rootdn "{cls.ADMIN}"
rootpw {cls.PASSWORD}
directory {cls.DATA}
""",
        )
        application.write(
            "/run/applications-ldap.ldif",
            f"""dn: {cls.BASE}
objectClass: dcObject
objectClass: organization
dc: house
o: House

dn: ou=guests,{cls.BASE}
objectClass: organizationalUnit
ou: guests
""",
        )
        application.run("slapadd", "-f", cls.CONF, "-l", "/run/applications-ldap.ldif")
        with open("/run/applications-slapd.log", "ab") as log:
            cls.running.append(
                processes.start(
                    ["slapd", "-d", "0", "-f", cls.CONF, "-h", "ldap://127.0.0.1:389"], log
                )
            )
        check = ["ldapsearch", "-x", "-H", "ldap://127.0.0.1", "-b", cls.BASE, "-s", "base"]
        accepts = lambda: subprocess.run(check, capture_output=True, check=False).returncode == 0
        processes.wait_until(accepts, 20, "slapd to accept connections")

    @classmethod
    def stop(cls):
        """Ends the directory's server."""
        while cls.running:
            processes.stop(cls.running.pop())


class PhpLdapAdmin(application.Application):
    """Over OpenLDAP."""

    key = "phpldapadmin"
    packages = ("phpldapadmin", "slapd", "ldap-utils")
    root = "/usr/share/phpldapadmin/htdocs"
    starts = (
        "/",
        "/index.php?server_id=1",
        "/cmd.php?cmd=login_form&server_id=1",
        "/cmd.php?cmd=schema&server_id=1",
        "/images/",
        "/css/",
        "/js/",
        "/index.php?cmd=query_engine&server_id=1",
        "/welcome.php",
    )

    def set_up(self):
        Directory.create()

    def use(self, session):
        Directory.create()
        session.get("/")
        page = session.get("/cmd.php?cmd=login_form&server_id=1&nodecode[login_pass]=1")
        session.submit(page, {"login": Directory.ADMIN, "login_pass": Directory.PASSWORD})
        comparison.look_around(session, ["/index.php", "/cmd.php?cmd=import_form&server_id=1"])
        page = session.get("/cmd.php?cmd=import_form&server_id=1")
        ldif = (f"dn: ou=new,{Directory.BASE}\nobjectClass: organizationalUnit\nou: new\n").encode()
        session.submit(
            page, {"cmd": "import", "ldif": ""}, [("ldif_file", "n.ldif", "text/plain", ldif)]
        )
        session.get(
            f"/cmd.php?cmd=export&server_id=1&dn={Directory.BASE}&scope=sub&exporter_id=LDIF&format=unix"
        )
        session.get("/cmd.php?cmd=logout&server_id=1")


class LdapAccountManager(application.Application):
    """Over OpenLDAP."""

    key = "ldap-account-manager"
    packages = ("ldap-account-manager", "slapd", "ldap-utils")
    root = "/usr/share/ldap-account-manager"
    nginx = """location ~ /(tmp/internal|sess|config|docs/devel|docs/schema|lib|help|locale) { deny all; return 403; }
        location / { try_files $uri $uri/ =404; }"""
    state = (
        "/var/lib/ldap-account-manager/tmp",
        "/var/lib/ldap-account-manager/sess",
        "/var/lib/ldap-account-manager/config",
    )
    starts = (
        "/",
        "/templates/login.php",
        "/templates/config/index.php",
        "/templates/config/conflogin.php",
        "/templates/config/mainlogin.php",
        "/style/",
        "/graphics/",
        "/pwa_worker.js",
        "/docs/",
    )
    refused = (
        "/config/lam.conf",
        "/config/config.cfg.sample",
        "/lib/modules.inc",
        "/sess/.htaccess",
        "/tmp/x.php",
        "/tmp/internal/x.txt",
        "/locale/de_DE/LC_MESSAGES/messages.mo",
        "/config/language",
    )

    def set_up(self):
        Directory.create()
        for path in glob.glob("/var/lib/ldap-account-manager/config/lam.conf"):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            text = text.replace("dc=my-domain,dc=com", Directory.BASE).replace(
                "cn=Manager", "cn=admin"
            )
            text = text.replace("dc=example,dc=com", Directory.BASE).replace(
                "dc=yourdomain,dc=org", Directory.BASE
            )
            application.write(path, text)

    def use(self, session):
        Directory.create()
        session.get("/")
        page = session.get("/templates/login.php")
        session.submit(page, {"passwd": Directory.PASSWORD, "checklogin": "Login"})
        comparison.look_around(
            session, ["/templates/lists/list.php?type=user", "/templates/tools.php"]
        )
        page = session.get("/templates/config/conflogin.php")
        session.submit(page, {"passwd": "lam", "submit": "OK"})
        session.get("/templates/config/confmain.php")
