// Looks at pages with Chromium, as a person would: node browse.js SPEC. SPEC is JSON: `url`, `views`
// (fragments), `widths`, `schemes`, `folder` for pictures, `axe` (the file), `pictures` (whether to
// take them), `user` and `password`; `file` is the name of a report that is a file,
// `open` has by view what to click, and an expression that is true then; `evaluate` has expressions
// whose values are wanted at the end. Writes JSON: what each view shows and what is wrong with it.
'use strict';
const fs = require('fs');
const path = require('path');
const os = require('os');
const { spawn } = require('child_process');
const WebSocket = require('ws');
const spec = JSON.parse(process.argv[2]);

function startChromium(profile) {
    const chromium = spawn('chromium', [
        '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
        '--disable-background-networking', '--disable-component-update', '--disable-sync',
        '--disable-dev-shm-usage', '--remote-debugging-port=0', `--user-data-dir=${profile}`,
        'about:blank',
    ], { env: { ...process.env, HOME: profile }, stdio: ['ignore', 'ignore', 'pipe'] });
    return new Promise((resolve, reject) => {
        let said = '';
        chromium.stderr.on('data', (bytes) => {
            said += bytes;
            const found = /DevTools listening on (ws:\S+)/.exec(said);
            if (found) resolve({ chromium, url: found[1] });
        });
        chromium.on('exit', () => reject(new Error(`chromium ended: ${said}`)));
    });
}

class Browser {
    constructor(socket) {
        this.socket = socket;
        this.calls = new Map();
        this.next = 1;
        this.listeners = [];
        socket.on('message', (data) => {
            const message = JSON.parse(data);
            const call = this.calls.get(message.id);
            if (call) {
                this.calls.delete(message.id);
                if (message.error) call.reject(new Error(JSON.stringify(message.error)));
                else call.resolve(message.result);
            } else {
                this.listeners.forEach((listen) => listen(message));
            }
        });
    }

    call(method, params = {}, sessionId = undefined) {
        const id = this.next++;
        this.socket.send(JSON.stringify({ id, method, params, sessionId }));
        return new Promise((resolve, reject) => this.calls.set(id, { resolve, reject }));
    }
}

async function main() {
    const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'browse-'));
    const { chromium, url } = await startChromium(profile);
    const socket = new WebSocket(url, { perMessageDeflate: false, maxPayload: 1 << 28 });
    await new Promise((resolve, reject) => socket.on('open', resolve).on('error', reject));
    const browser = new Browser(socket);
    const { targetId } = await browser.call('Target.createTarget', { url: 'about:blank' });
    const attached = await browser.call('Target.attachToTarget', { targetId, flatten: true });
    const session = attached.sessionId;
    const call = (method, params) => browser.call(method, params, session);
    const evaluate = async (expression) => {
        const { result, exceptionDetails } = await call('Runtime.evaluate', {
            expression, awaitPromise: true, returnByValue: true,
        });
        if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
        return result.value;
    };
    const until = async (expression, what) => {
        for (let tries = 0; tries < (spec.patience || 60) * 10; tries += 1) {
            if (await evaluate(expression).catch(() => false)) return;
            await new Promise((resolve) => setTimeout(resolve, 100));
        }
        throw new Error(`timeout: ${what}`);
    };
    const errors = [];
    let bytes = 0;
    browser.listeners.push((message) => {
        const { method, params } = message;
        if (method === 'Runtime.exceptionThrown') errors.push(JSON.stringify(params.exceptionDetails));
        if (method === 'Log.entryAdded' && params.entry.level === 'error') {
            errors.push(`${params.entry.text} ${params.entry.url || ''}`);
        }
        if (method === 'Runtime.consoleAPICalled' && params.type === 'error') {
            errors.push(JSON.stringify(params.args));
        }
        if (method === 'Network.loadingFinished') bytes += params.encodedDataLength;
        if (method === 'Network.requestWillBeSent') requests.push(params.request.url);
    });
    const requests = [];
    await Promise.all(['Page', 'Runtime', 'Log', 'Network'].map((one) => call(`${one}.enable`)));
    if (spec.password) {
        const pair = Buffer.from(`${spec.user}:${spec.password}`).toString('base64');
        await call('Network.setExtraHTTPHeaders', { headers: { Authorization: `Basic ${pair}` } });
    }
    const axe = spec.axe ? fs.readFileSync(spec.axe, 'utf8') : '';
    const views = [];
    let firstView = null;
    const started = Date.now();
    let inAxe = 0;
    for (const width of spec.widths) {
        for (const scheme of spec.schemes) {
            await call('Emulation.setDeviceMetricsOverride', {
                width, height: width < 600 ? 844 : 900, deviceScaleFactor: 1, mobile: width < 600,
            });
            await call('Emulation.setEmulatedMedia', {
                features: [
                    { name: 'prefers-color-scheme', value: scheme },
                    { name: 'prefers-reduced-motion', value: 'reduce' },
                ],
            });
            await call('Page.navigate', { url: spec.url });
            const live = spec.file ? "document.readyState === 'complete'" : "document.body.dataset.live === 'yes'";
            await until(`document.body && ${live}`, 'the first state');
            const took = await evaluate(`performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd`);
            firstView = firstView === null ? took : Math.max(firstView, took);
            if (spec.pool) {
                await evaluate(`(() => { const s = document.getElementById('pool'); s.value = ${JSON.stringify(spec.pool)};
                    s.dispatchEvent(new Event('change')); })()`);
            }
            if (spec.ready) await until(spec.ready, spec.ready);
            for (const view of spec.views) {
                await evaluate(`location.hash = ${JSON.stringify(view)}`);
                await until(`!document.getElementById(${JSON.stringify(view)}).hidden`, view);
                const opened = (spec.open || {})[view];
                if (opened) {
                    await until(`document.querySelector(${JSON.stringify(opened.click)})`, opened.click);
                    await evaluate(`document.querySelector(${JSON.stringify(opened.click)}).click()`);
                    await until(opened.until, opened.until);
                }
                const overflow = await evaluate(
                    'document.documentElement.scrollWidth - document.documentElement.clientWidth');
                const text = await evaluate(`document.getElementById(${JSON.stringify(view)}).innerText`);
                let violations = [];
                if (axe) {
                    const before = Date.now();
                    await evaluate(`if (!window.axe) { ${axe} }`);
                    violations = await evaluate(`axe.run(document, { resultTypes: ['violations'] })
                        .then((found) => found.violations.map((one) => one.id + ': ' +
                            one.nodes.map((node) => node.html + ' ' + node.failureSummary).join(' | ')))`);
                    inAxe += Date.now() - before;
                }
                const name = `${spec.file || 'dashboard'}-${view}-${width}-${scheme}`;
                if (spec.folder) {
                    const { data } = await call('Page.captureScreenshot', { format: 'png' });
                    fs.writeFileSync(path.join(spec.folder, `${name}.png`), Buffer.from(data, 'base64'));
                }
                views.push({ view, width, scheme, overflow, text, violations, name });
            }
        }
    }
    // The views are reachable with the keyboard alone.
    await evaluate("location.hash = 'pools'; document.activeElement && document.activeElement.blur()");
    const values = [];
    for (const expression of spec.evaluate || []) values.push(await evaluate(expression));
    const focused = [];
    for (let tab = 0; tab < 20; tab += 1) {
        for (const type of ['keyDown', 'keyUp']) {
            await call('Input.dispatchKeyEvent', { type, key: 'Tab', code: 'Tab', windowsVirtualKeyCode: 9 });
        }
        focused.push(await evaluate("(document.activeElement.hash || document.activeElement.id || '')"));
    }
    process.stdout.write(JSON.stringify({
        views, errors, requests, bytes, firstView, focused, values, inAxe, took: Date.now() - started,
    }));
    await browser.call('Browser.close').catch(() => {});
    await new Promise((resolve) => chromium.on('exit', resolve));
    fs.rmSync(profile, { recursive: true, force: true });
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
