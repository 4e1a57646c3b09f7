import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

const shim = (name: string): string => fileURLToPath(new URL(`./src/shims/${name}.ts`, import.meta.url));
const TEXTS = /\.(js|css|html|svg)$/;

interface Source {
    entityTypes: Record<string, { extension?: string; operations: string[]; moreOperations?: string[]; attributes: Record<string, Record<string, unknown>> }>;
}

/**
 * The module `virtual:schema`: what GET-SCHEMA leaves out, since 1.20's does: which attributes CREATE and UPDATE take,
 * operations beyond 1.20's, and the types that are shown only once they are used.
 */
function schema(): Plugin {
    const id = 'virtual:schema';
    return {
        name: 'schema',
        resolveId: (wanted) => (wanted === id ? `\0${id}` : null),
        load(wanted) {
            if (wanted !== `\0${id}`) return null;
            const path = fileURLToPath(new URL('../../../schemas/management.json', import.meta.url));
            const { entityTypes } = JSON.parse(readFileSync(path, 'utf8')) as Source;
            const common = entityTypes['entity']?.attributes ?? {};
            const more = Object.fromEntries(Object.entries(entityTypes).map(([type, each]) => {
                const attributes = Object.entries({ ...each.attributes, ...common });
                const having = (flag: string): string[] => attributes.filter(([, has]) => has[flag] === true).map(([name]) => name);
                return [type, { create: having('create'), update: having('update'), secret: having('secret'), operations: each.moreOperations ?? [] }];
            }));
            const extensions = Object.fromEntries(Object.entries(entityTypes).filter(([, each]) => each.extension).map(([type, each]) => [type, { ...each, attributes: { ...each.attributes, ...common } }]));
            return `export const more = ${JSON.stringify(more)}; export const extensions = ${JSON.stringify(extensions)};`;
        },
    };
}

/** Writes licences.txt: those of the packages whose code is in the bundle, which want to go with it. */
function licences(): Plugin {
    return {
        name: 'licences',
        apply: 'build',
        generateBundle(_, bundle) {
            const modules = Object.values(bundle).flatMap((each) => (each.type === 'chunk' ? each.moduleIds : []));
            const packages = new Set(modules.flatMap((id) => /^\0?(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1] ?? []));
            const texts = [...packages].sort().map((folder) => {
                const name = folder.slice(folder.lastIndexOf('node_modules/') + 13);
                const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
                if (file === undefined) throw new Error(`${name} has no licence`);
                return `${name}\n\n${readFileSync(join(folder, file), 'utf8').trim()}\n`;
            });
            this.emitFile({ type: 'asset', fileName: 'licences.txt', source: texts.join('\n----\n\n') });
        },
    };
}

/** Writes what the router sends to browsers that take it: name.br and name.gz beside each text. */
function precompressed(): Plugin {
    let folder = '';
    return {
        name: 'precompressed',
        apply: 'build',
        configResolved(config) {
            folder = config.build.outDir;
        },
        closeBundle() {
            for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
                if (!TEXTS.test(name)) continue;
                const text = readFileSync(join(folder, name));
                writeFileSync(join(folder, `${name}.gz`), gzipSync(text, { level: 9 }));
                writeFileSync(join(folder, `${name}.br`), brotliCompressSync(text));
            }
        },
    };
}

export default defineConfig({
    root: fileURLToPath(new URL('.', import.meta.url)),
    // Relative: the built files can be served below any path of any server.
    base: './',
    // What rhea uses of Node's modules, and no more of them.
    resolve: {
        alias: { fs: shim('nothing'), os: shim('nothing'), path: shim('nothing'), net: shim('nothing'), tls: shim('nothing'), util: shim('util'), debug: shim('debug') },
    },
    define: { 'process.env.MESSAGING_CONNECT_FILE': 'undefined' },
    // A data: address is no file of this host, and the router's content security policy permits no others.
    build: {
        outDir: fileURLToPath(new URL('./dist', import.meta.url)), emptyOutDir: true, target: 'es2022', assetsInlineLimit: 0, modulePreload: { polyfill: false },
        commonjsOptions: { requireReturnsDefault: 'preferred' },
    },
    plugins: [schema(), licences(), precompressed()],
    test: { include: ['tests/**/*.test.ts'] },
} as Parameters<typeof defineConfig>[0]);
