"""Frameworks and libraries as distributions package them: Symfony, Laravel's parts, Slim, sabre/dav."""

import os
import shutil

import application

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "tests", "fixtures")
# The `.htaccess` that Laravel, Symfony's apache-pack and Slim's skeleton ship, reduced to rules.
LARAVEL = r"""<IfModule mod_rewrite.c>
    <IfModule mod_negotiation.c>
        Options -MultiViews -Indexes
    </IfModule>
    RewriteEngine On
    RewriteCond %{HTTP:Authorization} .
    RewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]
    RewriteCond %{REQUEST_FILENAME} !-d
    RewriteCond %{REQUEST_URI} (.+)/$
    RewriteRule ^ %1 [L,R=301]
    RewriteCond %{REQUEST_FILENAME} !-d
    RewriteCond %{REQUEST_FILENAME} !-f
    RewriteRule ^ index.php [L]
</IfModule>
"""
SYMFONY = r"""DirectoryIndex index.php
<IfModule mod_negotiation.c>
    Options -MultiViews
</IfModule>
<IfModule mod_rewrite.c>
    RewriteEngine On
    RewriteCond %{REQUEST_URI}::$0 ^(/.+)/(.*)::\2$
    RewriteRule .* - [E=BASE:%1]
    RewriteCond %{HTTP:Authorization} .+
    RewriteRule ^ - [E=HTTP_AUTHORIZATION:%0]
    RewriteCond %{ENV:REDIRECT_STATUS} =""
    RewriteRule ^index\.php(?:/(.*)|$) %{ENV:BASE}/$1 [R=301,L]
    RewriteCond %{REQUEST_FILENAME} !-f
    RewriteRule ^ %{ENV:BASE}/index.php [L]
</IfModule>
<IfModule !mod_rewrite.c>
    <IfModule mod_alias.c>
        RedirectMatch 307 ^/$ /index.php/
    </IfModule>
</IfModule>
"""
FRONT = "location / { try_files $uri /index.php$is_args$args; }"


GOODS = """$d = new PDO('sqlite:' . $argv[1]);
$d->exec('CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT)');
for ($i = 1; $i <= 20; $i++) { $d->exec("INSERT INTO goods VALUES ($i, 'thing <$i>')"); }"""


class Framework(application.Application):
    """One of the fixtures of the tests: a shop of three pages behind one script."""

    nginx = FRONT
    fixture = rules = ""
    starts = (
        "/",
        "/goods",
        "/goods/1",
        "/goods/2",
        "/goods/1/",
        "/goods/none",
        "/index.php",
        "/index.php/goods/1",
        "/no/such/page",
        "/robots.txt",
        "/goods?page=2",
        "/Goods",
        "/storage/",
        "/index.php/",
    )

    def set_up(self):
        folder = os.path.dirname(self.root)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(os.path.join(FIXTURES, self.fixture), folder)
        application.write(f"{self.root}/.htaccess", self.rules)
        application.write(f"{self.root}/robots.txt", "User-agent: *\n")
        os.makedirs(f"{folder}/var")
        application.run("php", "-r", GOODS, f"{folder}/var/goods.sqlite")
        application.give([folder])
        self.state = (folder,)

    def use(self, session):
        session.get("/")
        for path in ("/goods/1", "/goods/2", "/goods"):
            session.get(path, [("Authorization", "Bearer token")])
            session.post(
                path,
                [("name", "A chair"), ("text", "ä & b")],
                [("f", "a.txt", "text/plain", b"text")],
            )
            for method in ("PUT", "PATCH", "DELETE", "OPTIONS"):
                session.request(path, method, [("Content-Type", "application/json")], b"{}")


class Symfony(Framework):
    """HttpKernel, Twig, Routing."""

    key = fixture = "symfony"
    packages = ("php-symfony-framework-bundle", "php-twig", "php-doctrine-dbal")
    root = "/srv/symfony/public"
    rules = SYMFONY


class Laravel(Framework):
    """Laravel's components."""

    key = "laravel"
    fixture = "illuminate"
    packages = ("php-illuminate-routing", "php-illuminate-view", "php-illuminate-database")
    root = "/srv/laravel/public"
    rules = LARAVEL


class Slim(application.Application):
    """Slim 3 with four routes."""

    key = "slim"
    packages = ("php-slim",)
    root = "/srv/slim"
    nginx = FRONT
    starts = (
        "/",
        "/hello/anna",
        "/hello/%C3%A4",
        "/json",
        "/none",
        "/redirect",
        "/index.php/hello/ben",
        "/index.php",
    )

    def set_up(self):
        shutil.rmtree(self.root, ignore_errors=True)
        application.write(
            f"{self.root}/.htaccess",
            "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\n"
            "RewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule ^ index.php [QSA,L]\n",
        )
        application.write(f"{self.root}/index.php", SLIM)

    def use(self, session):
        session.get("/")
        session.post("/form", [("name", "Anna")])
        session.post(
            "/upload",
            [("name", "Anna")],
            [("file", "a.bin", "application/octet-stream", bytes(range(256)))],
        )
        session.request("/json", "PUT", [("Content-Type", "application/json")], b'{"a": [1, 2]}')
        session.request("/json", "DELETE")
        session.request("/json", "OPTIONS")
        session.request("/", "PUT", body=b"x")


SLIM = r"""<?php
require 'Slim/autoload.php';
$app = new \Slim\App(['settings' => ['displayErrorDetails' => true]]);
$app->get('/', function ($request, $response) { return $response->write('home'); });
$app->get('/hello/{name}', function ($request, $response, $args) {
    return $response->write('hello ' . htmlspecialchars($args['name']));
});
$app->get('/redirect', function ($request, $response) { return $response->withRedirect('/json', 303); });
$app->any('/json', function ($request, $response) {
    return $response->withJson(['method' => $request->getMethod(), 'body' => $request->getParsedBody(),
        'uri' => (string) $request->getUri()->getPath()]);
});
$app->post('/form', function ($request, $response) { return $response->withJson($request->getParsedBody()); });
$app->post('/upload', function ($request, $response) {
    $file = $request->getUploadedFiles()['file'];
    return $response->withJson([$file->getClientFilename(), $file->getSize(), md5($file->getStream())]);
});
$app->run();
"""


class SabreDav(application.Application):
    """A WebDAV server over a folder."""

    key = "sabredav"
    packages = ("php-sabre-dav",)
    root = "/srv/sabredav"
    nginx = "location / { rewrite ^ /server.php$uri last; }"
    state = ("/srv/sabredav-data",)
    starts = (
        "/server.php/",
        "/server.php/a.txt",
        "/server.php/folder/",
        "/server.php/none",
        "/server.php",
        "/server.php/folder/b%20c.txt",
        "/a.txt",
    )

    def set_up(self):
        for folder in (self.root, "/srv/sabredav-data"):
            shutil.rmtree(folder, ignore_errors=True)
        os.makedirs("/srv/sabredav-data/folder")
        os.makedirs("/srv/sabredav-data/.locks")
        application.write("/srv/sabredav-data/a.txt", "a text\n" * 300)
        application.write("/srv/sabredav-data/folder/b c.txt", "b\n")
        application.write(f"{self.root}/server.php", SABRE)
        application.write(
            f"{self.root}/.htaccess",
            "RewriteEngine On\nRewriteRule !^server\\.php server.php%{REQUEST_URI} [L]\n",
        )

    def use(self, session):
        base = "/server.php"
        tag = session.request(f"{base}/a.txt").header("ETag")
        session.request(f"{base}/", "PROPFIND", [("Depth", "1")])
        session.request(f"{base}/", "OPTIONS")
        session.request(f"{base}/new.txt", "PUT", [("Content-Type", "text/plain")], b"new\n")
        session.request(f"{base}/new.txt", "PUT", [("If-None-Match", "*")], b"again\n")
        session.request(f"{base}/a.txt", "PUT", [("If-Match", tag)], b"changed\n")
        session.request(f"{base}/a.txt", "PUT", [("If-Match", '"wrong"')], b"not\n")
        session.request(f"{base}/x", "MKCOL")
        session.request(f"{base}/new.txt", "COPY", [("Destination", f"{base}/x/copy.txt")])
        session.request(
            f"{base}/new.txt", "MOVE", [("Destination", f"{base}/moved.txt"), ("Overwrite", "F")]
        )
        session.request(f"{base}/x/copy.txt", headers=[("Range", "bytes=1-2")])
        session.request(f"{base}/big.bin", "PUT", [], bytes(range(256)) * 8192)
        session.request(f"{base}/big.bin", "HEAD")
        session.request(f"{base}/big.bin")
        session.request(f"{base}/x", "DELETE")
        session.request(f"{base}/", "PROPFIND", [("Depth", "1")])
        session.request(f"{base}/a.txt", "PROPPATCH", [("Content-Type", "application/xml")], PATCH)


PATCH = b"""<?xml version="1.0"?><d:propertyupdate xmlns:d="DAV:"><d:set><d:prop>
<d:displayname>A</d:displayname></d:prop></d:set></d:propertyupdate>"""
SABRE = """<?php
date_default_timezone_set('UTC');
error_reporting(E_ALL & ~E_DEPRECATED & ~E_WARNING & ~E_NOTICE);
require 'Sabre/autoload.php';
$server = new Sabre\\DAV\\Server(new Sabre\\DAV\\FS\\Directory('/srv/sabredav-data'));
$server->setBaseUri('/server.php/');
$server->addPlugin(new Sabre\\DAV\\Browser\\Plugin());
$server->exec();
"""
