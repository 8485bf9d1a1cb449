// A WebSocket client: node client.js URL [CA-FILE]. Sends texts and a large message, and says what
// came back.
'use strict';
const fs = require('fs');
const WebSocket = require('ws');
const [url, ca] = process.argv.slice(2);
const socket = new WebSocket(url, ca ? { ca: fs.readFileSync(ca) } : {});
const large = Buffer.alloc(3 * 1024 * 1024, 7);
const expected = ['one', 'two', large];
let at = 0;
socket.on('open', () => expected.forEach((message) => socket.send(message)));
socket.on('message', (data) => {
    if (!Buffer.from(expected[at]).equals(data)) throw new Error(`message ${at} is another`);
    at += 1;
    if (at === expected.length) socket.close(1000, 'done');
});
socket.on('close', (code, reason) => console.log(`${at} messages, ${code} ${reason}`));
socket.on('error', (error) => console.log(error.message));
