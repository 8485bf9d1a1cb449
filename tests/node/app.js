// An application of its own behind the server: what it was asked, bodies, streams, a WebSocket.
// Usage: node app.js ADDRESS-OR-SOCKET. Says "listening" when it does.
'use strict';
const http = require('http');
const crypto = require('crypto');

let held = null;

function seen(request, response) {
    const body = JSON.stringify({
        method: request.method,
        url: request.url,
        fields: request.headers,
        raw: request.rawHeaders,
    });
    response.setHeader('Content-Type', 'application/json');
    response.setHeader('X-Answered-By', 'node');
    response.setHeader('X-Accel-Buffering', 'no');
    response.setHeader('X-Dropped', 'with the connection');
    response.setHeader('Connection', 'keep-alive, X-Dropped');
    response.end(body);
}

function digest(request, response) {
    const hash = crypto.createHash('md5');
    let length = 0;
    request.on('data', (piece) => {
        length += piece.length;
        hash.update(piece);
    });
    request.on('end', () => response.end(`${length} ${hash.digest('hex')}`));
}

function events(request, response) {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    response.write('data: first\n\n');
    held = response;
}

function large(request, response, bytes) {
    response.writeHead(200, { 'Content-Length': bytes });
    const piece = Buffer.alloc(65536, 'x');
    let left = bytes;
    const more = () => {
        while (left > 0) {
            const part = left < piece.length ? piece.subarray(0, left) : piece;
            left -= part.length;
            if (!response.write(part)) {
                response.once('drain', more);
                return;
            }
        }
        response.end();
    };
    more();
}

// A text of so many bytes, with the fields that the query names; `whole` has a length.
function text(request, response, query) {
    const body = 'some words of a page. '.repeat(Number(query.get('times') ?? 200));
    for (const field of query.getAll('h')) {
        const at = field.indexOf(':');
        response.appendHeader(field.slice(0, at), field.slice(at + 1));
    }
    if (!query.has('h')) response.setHeader('Content-Type', 'text/html');
    if (query.has('whole')) response.setHeader('Content-Length', body.length);
    response.statusCode = Number(query.get('status') ?? 200);
    if (request.method !== 'HEAD') {
        response.write(body.slice(0, 1000));
        response.write(body.slice(1000));
    }
    response.end();
}

const server = http.createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://localhost');
    switch (pathname.split('/').pop()) {
        case 'digest': return digest(request, response);
        case 'echo': return request.pipe(response);
        case 'events': return events(request, response);
        case 'go':
            held.end('data: last\n\n');
            return response.end('gone');
        case 'large': return large(request, response, Number(searchParams.get('bytes')));
        case 'status':
            response.statusCode = Number(searchParams.get('is'));
            return response.end(pathname.includes('empty') ? undefined : 'own words');
        case 'text': return text(request, response, searchParams);
        case 'pieces':
            response.writeHead(200, { 'Content-Type': 'text/html' });
            response.write('data: first\n\n');
            held = response;
            return undefined;
        case 'hints':
            response.writeEarlyHints({ link: '</a.css>; rel=preload; as=style' });
            return response.end('hinted');
        case 'port': return response.end(String(request.socket.remotePort));
        case 'trailers':
            response.writeHead(200, { Trailer: 'X-Sum' });
            response.write('body');
            response.addTrailers({ 'X-Sum': '1' });
            return response.end();
        default: return seen(request, response);
    }
});

// Without a package: what comes is sent back, whatever it is.
server.on('upgrade', (request, socket, first) => {
    if (request.url.endsWith('/refused')) {
        socket.end('HTTP/1.1 401 Unauthorized\r\nContent-Length: 9\r\n\r\nnot for u');
        return;
    }
    if (request.url.endsWith('/ws')) {
        const { WebSocketServer } = require('ws');
        const sockets = new WebSocketServer({ noServer: true });
        sockets.handleUpgrade(request, socket, first, (connection) => {
            connection.on('message', (data, isBinary) => connection.send(data, { binary: isBinary }));
        });
        return;
    }
    const key = request.headers['sec-websocket-key'];
    const magic = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
    const accept = crypto.createHash('sha1').update(key + magic).digest('base64');
    socket.on('error', () => {});
    // The greeting comes in the same packet.
    socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n'
        + `Connection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\nhello `);
    socket.write(first);
    socket.on('data', (data) => socket.write(data));
    socket.on('end', () => socket.end('goodbye'));
});

const where = process.argv[2];
const match = /^(.*):(\d+)$/.exec(where);
const ready = () => process.stdout.write('listening\n');
if (match) server.listen(Number(match[2]), match[1], ready);
else server.listen(where, ready);
