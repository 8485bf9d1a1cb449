"""Sites and wikis: WordPress, MediaWiki, DokuWiki, Shaarli, Tiny Tiny RSS."""

import os
import shutil

import application
import visitor
import comparison
import database

PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000020000000208020000"
    "00fdd49a730000001649444154789c63f8cfc0c0f09f8181e13f0303030300001bf204fde21e4c0d0000000049454e44ae426082"
)
LARGE = bytes(range(256)) * 4096 * 6  # 6 MiB: over upload_max_filesize, below post_max_size
PERSON, PASSWORD = "keeper", "a long pass phrase, for loopback only"


class WordPress(application.Application):
    """With pretty permalinks and the rules that a cache plugin writes."""

    key = "wordpress"
    packages = ("wordpress",)
    root = "/srv/wordpress"
    nginx = "location / { try_files $uri $uri/ /index.php?$args; }"
    maitred = 'app = "wordpress"'
    state = ("/srv/wordpress",)
    uses_database = True
    starts = (
        "/",
        "/wp-login.php",
        "/feed/",
        "/wp-json/",
        "/robots.txt",
        "/wp-sitemap.xml",
        "/?s=hello",
        "/no-such-page/",
        "/wp-admin/",
        "/xmlrpc.php",
        "/wp-content/uploads/",
        "/wp-includes/css/",
        "/readme.html",
        "/2026/11/",
    )
    refused = ("/wp-content/cache/secret.txt", "/wp-config.bak")

    def set_up(self):
        database.create("wordpress")
        shutil.rmtree(self.root, ignore_errors=True)
        # The package's own links lead to other packages' files.
        shutil.copytree("/usr/share/wordpress", self.root, ignore_dangling_symlinks=True)
        application.write(f"{self.root}/wp-config.php", self.config())
        os.makedirs(f"{self.root}/wp-content/uploads", exist_ok=True)
        application.write(f"{self.root}/.htaccess", CACHE_RULES)
        application.write(f"{self.root}/wp-content/cache/.htaccess", "Deny from all\n")
        application.write(f"{self.root}/wp-content/cache/secret.txt", "SECRET")
        application.write(f"{self.root}/wp-config.bak", "SECRET")
        script = (
            f"define('WP_INSTALLING', true); $_SERVER['HTTP_HOST'] = '{visitor.HOST}';"
            f"require '{self.root}/wp-load.php';"
            "require ABSPATH . 'wp-admin/includes/upgrade.php';"
            f"wp_install('House', '{PERSON}', 'k@example.com', true, '', '{PASSWORD}');"
            "update_option('permalink_structure', '/%year%/%monthnum%/%postname%/');"
            "flush_rewrite_rules();"
        )
        application.run("php", "-r", script)

    def config(self):
        """wp-config.php: no request leaves the machine."""
        names = (
            "AUTH_KEY",
            "SECURE_AUTH_KEY",
            "LOGGED_IN_KEY",
            "NONCE_KEY",
            "AUTH_SALT",
            "SECURE_AUTH_SALT",
            "LOGGED_IN_SALT",
            "NONCE_SALT",
        )
        secrets = "".join(f"define('{name}', 'for loopback only: {name}');\n" for name in names)
        return f"""<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'wordpress');
define('DB_PASSWORD', '{database.PASSWORD}');
define('DB_HOST', 'localhost');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
{secrets}define('WP_HTTP_BLOCK_EXTERNAL', true);
define('DISABLE_WP_CRON', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('FS_METHOD', 'direct');
define('WP_HOME', 'http://{visitor.HOST}');
define('WP_SITEURL', 'http://{visitor.HOST}');
$table_prefix = 'wp_';
if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
"""

    def use(self, session):
        form = session.get("/wp-login.php")
        session.submit(
            form, {"log": PERSON, "pwd": PASSWORD, "wp-submit": "Log In", "testcookie": "1"}
        )
        comparison.look_around(
            session, ["/wp-admin/", "/wp-admin/post-new.php", "/wp-admin/upload.php"]
        )
        page = session.get("/wp-admin/media-new.php?browser-uploader")
        picture = [("async-upload", "picture.png", "image/png", PICTURE)]
        session.submit(page, {"html-upload": "Upload"}, picture, form="file-form")
        large = [("async-upload", "large.png", "image/png", LARGE)]
        page = session.get("/wp-admin/media-new.php?browser-uploader")
        session.submit(page, {"html-upload": "Upload"}, large, form="file-form")
        session.get("/wp-admin/upload.php?mode=list")
        page = session.get("/wp-admin/options-permalink.php")
        session.submit(page, {"permalink_structure": "/%postname%/"})
        session.get("/hello-world/")
        page = session.get("/hello-world/")
        session.submit(page, {"comment": "A word from a guest."})
        session.get("/hello-world/")
        session.get("/feed/")
        session.get("/wp-admin/export.php?download=true&content=all")
        session.get("/?s=guest")
        session.get("/wp-login.php?action=logout")


CACHE_RULES = r"""# BEGIN WPSuperCache
<IfModule mod_rewrite.c>
RewriteEngine On
RewriteBase /
AddDefaultCharset UTF-8
RewriteCond %{REQUEST_URI} !^.*//.*$
RewriteCond %{REQUEST_METHOD} !POST
RewriteCond %{QUERY_STRING} ^$
RewriteCond %{HTTP:Cookie} !^.*(comment_author_|wordpress_logged_in|wp-postpass_).*$
RewriteCond %{DOCUMENT_ROOT}/wp-content/cache/supercache/%{SERVER_NAME}/$1/index.html -f
RewriteRule ^(.*) "/wp-content/cache/supercache/%{SERVER_NAME}/$1/index.html" [L]
</IfModule>
# END WPSuperCache
<IfModule mod_expires.c>
ExpiresActive On
ExpiresByType text/css "access plus 1 year"
ExpiresByType image/png A2592000
</IfModule>
<IfModule mod_headers.c>
<FilesMatch "\.(css|js)$">
Header set X-Plugin "cached"
Header append Vary Accept-Encoding
</FilesMatch>
</IfModule>
<FilesMatch "\.(bak|sql|log)$">
Require all denied
</FilesMatch>
# BEGIN WordPress
<IfModule mod_rewrite.c>
RewriteEngine On
RewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]
RewriteBase /
RewriteRule ^index\.php$ - [L]
RewriteCond %{REQUEST_FILENAME} !-f
RewriteCond %{REQUEST_FILENAME} !-d
RewriteRule . /index.php [L]
</IfModule>
# END WordPress
"""


class MediaWiki(application.Application):
    """With SQLite and uploads."""

    key = "mediawiki"
    packages = ("mediawiki",)
    root = "/srv/mediawiki"
    state = ("/srv/mediawiki/images", "/srv/mediawiki/cache", "/srv/mediawiki-data")
    starts = (
        "/index.php",
        "/index.php?title=Special:RecentChanges",
        "/load.php?modules=startup&only=scripts",
        "/index.php/Main_Page",
        "/api.php?action=query&meta=siteinfo&format=json",
        "/rest.php/v1/page/Main_Page",
        "/index.php?title=No_such",
        "/opensearch_desc.php",
        "/images/",
        "/resources/",
        "/mw-config/",
    )
    refused = (
        "/includes/DefaultSettings.php",
        "/maintenance/update.php",
        "/languages/Language.php",
        "/cache/secret.txt",
        "/vendor/autoload.php",
        "/images/deleted/secret.txt",
        "/tests/x.txt",
    )

    def set_up(self):
        shutil.rmtree("/srv/mediawiki-data", ignore_errors=True)
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree("/usr/share/mediawiki", self.root, ignore_dangling_symlinks=True)
        for folder in ("/srv/mediawiki-data", f"{self.root}/images/deleted", f"{self.root}/cache"):
            os.makedirs(folder, exist_ok=True)
        for folder in ("cache", "images/deleted"):
            application.write(f"{self.root}/{folder}/.htaccess", "Deny from all\n")
            application.write(f"{self.root}/{folder}/secret.txt", "SECRET")
        application.run(
            "php",
            f"{self.root}/maintenance/install.php",
            "--dbtype",
            "sqlite",
            "--dbname",
            "house",
            "--dbpath",
            "/srv/mediawiki-data",
            "--server",
            f"http://{visitor.HOST}",
            "--scriptpath",
            "",
            "--pass",
            PASSWORD,
            "--confpath",
            self.root,
            "House",
            PERSON,
        )
        with open(f"{self.root}/LocalSettings.php", "a", encoding="utf-8") as settings:
            settings.write(
                "\n$wgEnableUploads = true;\n$wgSecretKey = str_repeat('a', 64);\n$wgJobRunRate = 0;\n"
                "$wgUsePathInfo = true;\n$wgMainCacheType = $wgParserCacheType = CACHE_NONE;\n"
            )

    def use(self, session):
        page = session.get("/index.php?title=Special:UserLogin")
        session.submit(page, {"wpName": PERSON.title(), "wpPassword": PASSWORD})
        comparison.look_around(session, ["/index.php?title=Special:SpecialPages"])
        page = session.get("/index.php?title=Guests&action=edit")
        text = "'''Guests''' are [[welcome]].\n" * 20
        session.submit(
            page, {"wpTextbox1": text, "wpSave": "Save page", "wpPreview": None, "wpDiff": None}
        )
        session.get("/index.php?title=Guests")
        session.get("/index.php?title=Guests&action=history")
        session.get("/index.php?title=Guests&action=raw")
        for name, content in (("Picture.png", PICTURE), ("Large.png", LARGE)):
            page = session.get("/index.php?title=Special:Upload")
            changes = {"wpDestFile": name, "wpUpload": "Upload file", "wpIgnoreWarning": "1"}
            session.submit(page, changes, [("wpUploadFile", name, "image/png", content)])
        session.get("/index.php?title=Special:ListFiles")
        session.get("/index.php?title=File:Picture.png")
        page = session.get("/index.php?title=Special:Export")
        session.submit(page, {"pages": "Guests"})
        session.get("/api.php?action=query&list=allpages&format=json")
        page = session.get("/index.php?title=Special:UserLogout")
        session.submit(page, {"wpEditToken": None}, form="wpEditToken")


class DokuWiki(application.Application):
    """With its flat files, and rewriting by its own `.htaccess`."""

    key = "dokuwiki"
    packages = ("dokuwiki",)
    root = "/srv/dokuwiki"
    state = ("/srv/dokuwiki/data", "/srv/dokuwiki/conf")
    starts = (
        "/",
        "/doku.php?id=start&do=index",
        "/feed.php",
        "/doku.php?id=start&do=login",
        "/lib/exe/css.php",
        "/lib/exe/js.php",
        "/doku.php?id=playground:playground",
        "/doku.php/wiki:syntax",
        "/lib/",
        "/lib/images/",
        "/lib/exe/xmlrpc.php",
        "/doku.php?id=wiki:syntax&do=export_raw",
        "/README",
        "/VERSION",
    )
    nginx = """location ~ ^/(data|conf|bin|inc|vendor)/ { deny all; }
        location / { try_files $uri $uri/ =404; }"""
    refused = (
        "/data/pages/wiki/syntax.txt",
        "/conf/local.php",
        "/conf/users.auth.php",
        "/inc/init.php",
        "/bin/dwpage.php",
        "/vendor/autoload.php",
        "/VERSION",
        "/data/secret.txt",
    )

    def set_up(self):
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree("/usr/share/dokuwiki", self.root)
        shutil.copytree("/var/lib/dokuwiki/data", f"{self.root}/data")
        shutil.copytree("/etc/dokuwiki", f"{self.root}/conf")
        for name in ("data", "conf"):
            application.write(f"{self.root}/{name}/.htaccess", DOKUWIKI_DENIES)
        application.write(f"{self.root}/data/secret.txt", "SECRET")
        config = f"<?php\ndefine('DOKU_CONF', '{self.root}/conf/');\n"
        application.write(f"{self.root}/inc/preload.php", config)
        application.write(
            f"{self.root}/conf/local.php",
            f"""<?php
$conf['title'] = 'House';
$conf['useacl'] = 1;
$conf['superuser'] = '@admin';
$conf['savedir'] = '{self.root}/data';
$conf['updatecheck'] = 0;
""",
        )
        application.write(
            f"{self.root}/conf/acl.auth.php", "# <?php exit() ?>\n* @ALL 1\n* @user 16\n"
        )
        hashed = application.run(
            "php", "-r", f"echo password_hash('{PASSWORD}', PASSWORD_BCRYPT, ['cost' => 4]);"
        )
        application.write(
            f"{self.root}/conf/users.auth.php",
            f"# <?php exit() ?>\n{PERSON}:{hashed}:Keeper:k@example.com:admin,user\n",
        )

    def use(self, session):
        page = session.get("/doku.php?id=start&do=login")
        session.submit(page, {"u": PERSON, "p": PASSWORD})
        comparison.look_around(
            session, ["/doku.php?id=start&do=admin", "/doku.php?id=start&do=media"]
        )
        page = session.get("/doku.php?id=guests&do=edit")
        text = "====== Guests ======\n\nAre **welcome**.\n" * 3
        session.submit(page, {"wikitext": text, "do[save]": "1"})
        session.get("/doku.php?id=guests")
        session.get("/doku.php?id=guests&do=revisions")
        session.get("/doku.php?id=guests&do=export_raw")
        for name, content in (("picture.png", PICTURE), ("large.png", LARGE)):
            page = session.get("/lib/exe/mediamanager.php?ns=wiki")
            session.submit(page, {"mediaid": name}, [("upload", name, "image/png", content)])
        session.get("/lib/exe/fetch.php?media=wiki:picture.png")
        session.get("/lib/exe/mediamanager.php?ns=wiki")
        session.get("/doku.php?do=search&id=start&q=guests")
        session.get("/doku.php?id=start&do=logout")


DOKUWIKI_DENIES = """<IfModule mod_authz_core.c>
    Require all denied
</IfModule>
<IfModule !mod_authz_core.c>
    Order allow,deny
    Deny from all
</IfModule>
"""


class Shaarli(application.Application):
    """Slim's routes behind `.htaccess`."""

    key = "shaarli"
    packages = ("shaarli",)
    root = "/usr/share/shaarli"
    nginx = "location / { try_files $uri /index.php$is_args$args; }"
    state = ("/var/lib/shaarli/data", "/var/cache/shaarli")
    starts = (
        "/",
        "/login",
        "/tags/cloud",
        "/daily",
        "/picture-wall",
        "/feed/atom",
        "/feed/rss",
        "/open-search",
        "/?searchterm=x",
        "/shaare/none",
        "/api/v1/info",
        "/admin/tools",
        "/assets/",
        "/doc/",
    )
    refused = (
        "/application/bookmark/Bookmark.php",
        "/vendor/x.txt",
        "/application/Utils.php",
        "/.git/config",
        "/inc/rain.tpl.class.php",
        "/tpl/default/page.html",
    )

    def set_up(self):
        application.empty("/var/lib/shaarli/data")
        for name in ("cache", "pagecache", "tmp"):
            application.empty(f"/var/cache/shaarli/{name}")

    def use(self, session):
        page = session.get("/install")
        session.submit(
            page,
            {
                "setlogin": PERSON,
                "setpassword": PASSWORD,
                "continent": "UTC",
                "city": "UTC",
                "title": "House",
                "Save": "Save config",
            },
        )
        page = session.get("/login")
        session.submit(page, {"login": PERSON, "password": PASSWORD})
        comparison.look_around(session, ["/", "/admin/tools", "/admin/configure"])
        page = session.get("/admin/shaare?post=https%3A%2F%2Fexample.com%2Fa&title=A&description=B")
        session.submit(page, {"lf_title": "A house", "lf_tags": "guests welcome"})
        session.get("/?searchtags=guests")
        page = session.get("/admin/import")
        bookmarks = b'<!DOCTYPE NETSCAPE-Bookmark-file-1><DL><p><DT><A HREF="https://example.com/b">B</A></DL>'
        session.submit(
            page, {"privacy": "default"}, [("filetoupload", "b.html", "text/html", bookmarks)]
        )
        session.get("/?searchterm=B")
        page = session.get("/admin/export")
        session.submit(page, {"selection": "all"})
        session.get("/admin/logout")


class TinyTinyRss(application.Application):
    """With MariaDB."""

    key = "tt-rss"
    packages = ("tt-rss",)
    root = "/usr/share/tt-rss/www"
    state = ("/var/lib/tt-rss", "/var/cache/tt-rss")
    uses_database = True
    starts = (
        "/",
        "/public.php",
        "/public.php?op=login",
        "/backend.php",
        "/api/",
        "/prefs.php",
        "/register.php",
        "/opml.php",
        "/themes/",
        "/feed-icons/",
        "/images/",
        "/js/common.js",
        "/js/app.js",
    )
    refused = ()

    def set_up(self):
        database.create("ttrss")
        application.write(
            "/etc/tt-rss/database.php",
            f"<?php\n$dbtype='mysql'; $dbserver='localhost'; $dbport='3306'; $dbuser='ttrss';\n"
            f"$dbname='ttrss'; $dbpass='{database.PASSWORD}';\n",
        )
        with open("/etc/tt-rss/config.php", encoding="utf-8") as file:
            text = file.read().replace("'%SELF_URL_PATH'", f"'http://{visitor.HOST}/'")
        application.write("/etc/tt-rss/config.php", text)
        database.load("ttrss", "/usr/share/tt-rss/schema/ttrss_schema_mysql.sql")

    def use(self, session):
        session.get("/")
        session.post(
            "/public.php?return=", [("op", "login"), ("login", "admin"), ("password", "password")]
        )
        comparison.look_around(session, ["/", "/prefs.php"])
        token = next(
            (
                part.split('"')[0]
                for part in session.get("/").text.split('name="csrf_token" value="')[1:]
            ),
            "",
        )
        for method in ("getAllCounters", "sanityCheck"):
            session.post("/backend.php", [("op", "rpc"), ("method", method), ("csrf_token", token)])
        session.post(
            "/backend.php",
            [("op", "feeds"), ("method", "view"), ("feed", "-4"), ("csrf_token", token)],
        )
        session.get("/backend.php?op=opml&method=export&include_settings=1")
        opml = b'<?xml version="1.0"?><opml version="1.0"><head/><body><outline text="F"/></body></opml>'
        session.post(
            "/backend.php",
            [("op", "dlg"), ("method", "importOpml"), ("csrf_token", token)],
            [("opml_file", "f.opml", "text/xml", opml)],
        )
        session.get("/public.php?op=logout")
