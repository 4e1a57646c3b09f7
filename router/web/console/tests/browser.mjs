// A headless Chromium that is told by a JSON object on stdin what to do; writes one JSON object of what came of it.
//
// chromium  path of the browser          width, height, theme ("light", "dark")
// steps     [{do: "open", url} | {do: "wait", selector, text?} | {do: "fill", selector, text} | {do: "choose", selector, value} |
//            {do: "click", selector, text?} | {do: "text", selector} | {do: "texts", selector} | {do: "count", selector} |
//            {do: "hash", hash} | {do: "key", key} | {do: "run", code} | {do: "axe"} | {do: "picture", path}]
// Result: found (one entry a step, null where there is nothing to say), errors (of the browser's console), failure.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import puppeteer from 'puppeteer-core';

const STEP_MS = 20_000;

const task = JSON.parse(readFileSync(0, 'utf8'));
const result = { found: [], errors: [], failure: null };
const browser = await puppeteer.launch({
    executablePath: task.chromium,
    // A container has no user namespaces for the sandbox; what is opened is our own page alone.
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--ignore-certificate-errors', '--disable-gpu'],
});

const steps = {
    open: async (page, { url }) => void (await page.goto(url, { waitUntil: 'load' })),
    wait: async (page, { selector, text, gone }) =>
        void (await page.waitForFunction(
            (wanted, words, isGone) => {
                const found = [...document.querySelectorAll(wanted)].some((each) => !words || each.textContent.includes(words));
                return isGone ? !found : found;
            },
            { timeout: STEP_MS, polling: 100 }, selector, text, gone,
        )),
    fill: async (page, { selector, text }) =>
        void (await page.$eval(selector, (field, value) => {
            field.focus();
            field.value = value;
            field.dispatchEvent(new Event('input', { bubbles: true }));
        }, text)),
    choose: async (page, { selector, value }) => void (await page.select(selector, value)),
    click: async (page, { selector, text }) =>
        void (await page.$$eval(selector, (all, words) => {
            const found = all.find((each) => !words || each.textContent.includes(words));
            if (!found) throw new Error(`nothing to click: ${words}`);
            found.click();
        }, text)),
    text: (page, { selector }) => page.$eval(selector, (found) => found.textContent),
    texts: (page, { selector }) => page.$$eval(selector, (all) => all.map((each) => each.textContent)),
    count: (page, { selector }) => page.$$eval(selector, (all) => all.length),
    hash: async (page, { hash }) => void (await page.evaluate((wanted) => (location.hash = wanted), hash)),
    key: async (page, { key }) => void (await page.keyboard.press(key)),
    run: (page, { code }) => page.evaluate(code),
    axe: async (page) => {
        // By the debugger's protocol: the page's own policy forbids scripts that are no files of the router.
        await page.evaluate(readFileSync(fileURLToPath(import.meta.resolve('axe-core/axe.min.js')), 'utf8'));
        const found = await page.evaluate('axe.run({ resultTypes: ["violations"] })');
        return found.violations
            .filter(({ impact }) => impact === 'serious' || impact === 'critical')
            .map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((each) => each.html.slice(0, 120)).slice(0, 3).join(' | ')}`);
    },
    picture: async (page, { path }) => void (await page.screenshot({ path, fullPage: false })),
};

try {
    const page = await browser.newPage();
    page.setDefaultTimeout(STEP_MS);
    await page.setViewport({ width: task.width ?? 1280, height: task.height ?? 900 });
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: task.theme ?? 'light' }]);
    page.on('console', (message) => {
        if (message.type() === 'error' || message.type() === 'warn') result.errors.push(message.text());
    });
    page.on('pageerror', (error) => result.errors.push(String(error)));
    for (const step of task.steps) {
        try {
            result.found.push((await steps[step.do](page, step)) ?? null);
        } catch (error) {
            result.failure = `${JSON.stringify(step)}: ${error.message}\n${await page.evaluate('document.body.innerText.slice(0, 2000)')}`;
            break;
        }
    }
} finally {
    await browser.close();
}
process.stdout.write(JSON.stringify(result));
