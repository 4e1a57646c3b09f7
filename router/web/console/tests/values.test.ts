import { describe, expect, it } from 'vitest';
import { cell, csv } from '../src/csv';
import { loginFailure, unreachable } from '../src/failures';
import { route } from '../src/hooks';
import { body } from '../src/parts/form';
import { matching, sorted } from '../src/parts/table';
import { problems, type Facts } from '../src/problems';
import { Rates } from '../src/rates';
import { parsed, readSchema, type EntityType } from '../src/schema';
import { duration, plain, text, type Row } from '../src/values';

describe('values', () => {
    it('reads what rhea decodes', () => {
        expect(plain(new Uint8Array([0, 0, 0, 1, 0, 0, 0, 0]))).toBe(4294967296n);
        expect(plain(new Uint8Array([255]))).toBe('ff');
        expect(plain({ type: {}, value: 7 })).toBe(7);
        expect(text(plain({ a: [1n, true, null] }))).toBe('{"a":["1",true,null]}');
    });
    it('takes no key for a prototype', () => {
        const made = plain(JSON.parse('{"__proto__": {"isAdmin": true}}')) as Row;
        expect('isAdmin' in made).toBe(false);
        expect(({} as Row)['isAdmin']).toBeUndefined();
    });
    it('shows durations', () => expect(duration(90061)).toBe('1 d 01:01:01'));
});

describe('CSV', () => {
    it.each(['=1+1', '+1+1', '-1+cmd', '@SUM(A1)', ' =1', '\t=1', '\uFF1D1'])('makes %j no formula', (given) => {
        expect(cell(given).replace(/^"/, '')).toMatch(/^'/);
    });
    it('leaves numbers numbers', () => expect([cell('-12'), cell('3.5'), cell('')]).toEqual(['-12', '3.5', '']));
    it('quotes', () => expect(csv(['a', 'b'], [{ a: 'x,"y"', b: 1 }])).toBe('a,b\r\n"x,""y""",1\r\n'));
});

describe('words for failures', () => {
    const page = { protocol: 'https:', host: 'h', origin: 'https://h' };
    it('names what the listener offers', () => {
        expect(loginFailure('No suitable mechanism; server supports EXTERNAL', false).message).toContain('EXTERNAL');
        expect(loginFailure('No suitable mechanism; server supports PLAIN', true).wantsLogin).toBe(true);
        expect(loginFailure('Failed to authenticate: 1', false).isFinal).toBe(true);
        expect(loginFailure('Failed to authenticate: 4', false).isFinal).toBe(false);
    });
    it('tells a proxy from a router that is not there', () => {
        expect(unreachable('ws://h/', page, null).message).toContain('choose wss');
        expect(unreachable('wss://h/', page, false).message).toContain('does not answer');
        expect(unreachable('wss://h/', page, true).message).toContain('opens no WebSocket');
        expect(unreachable('wss://other/', page, null).message).toContain('certificate');
    });
});

describe('rates', () => {
    it('are of a second, and not of a counter that began anew', () => {
        const rates = new Rates();
        expect(rates.look(new Map([['a', 10]]), 0).size).toBe(0);
        expect(rates.look(new Map([['a', 30]]), 2000).get('a')).toBe(10);
        expect(rates.look(new Map([['a', 5]]), 3000).get('a')).toBe(0);
    });
});

describe('schema', () => {
    const raw = { entityTypes: { address: { operations: ['CREATE'], attributes: { prefix: { type: 'string' }, distribution: { type: ['multicast', 'closest'] }, priority: { type: 'integer' }, name: { type: 'string' } } } } };
    const address = readSchema(raw).find((each) => each.name === 'address') as EntityType;
    it('knows what may be created, and extensions', () => {
        expect(address.attributes.map((each) => [each.name, each.mayCreate])).toContainEqual(['prefix', true]);
        expect(address.attributes[0]?.name).toBe('name');
        expect(readSchema(raw).map((each) => each.name)).toContain('ban');
    });
    it('makes bodies of forms', () => {
        expect(body(address.attributes, { prefix: 'a', priority: ' 4 ', distribution: '' })).toEqual({ prefix: 'a', priority: 4 });
        expect(body(address.attributes, { prefix: 'a', priority: '5' }, { prefix: 'a', priority: 4 })).toEqual({ priority: 5 });
        const priority = address.attributes.find((each) => each.name === 'priority');
        if (!priority) throw new Error('no priority');
        expect(() => parsed(priority, '4x')).toThrow('whole number');
        expect(() => parsed(priority, '9999999999999999999')).toThrow('too large');
    });
});

describe('what is wrong', () => {
    const well: Facts = { router: { fileDescriptorLimit: 100, fileDescriptorCount: 5 }, policy: { enableVhostPolicy: true }, connectors: [{ connectionStatus: 'SUCCESS' }], autoLinks: [], linkRoutes: [], bans: 0, shadow: null };
    it('is nothing where all is well', () => expect(problems(well, 0)).toEqual([]));
    it('has the worst first', () => {
        const found = problems({ ...well, router: { ...well.router, blockedLinkCount: 2, deliveriesStuck: 1 } }, 5);
        expect(found.map((each) => each.isBad)).toEqual([true, false, false]);
    });
});

describe('tables and addresses', () => {
    const rows: Row[] = [{ a: 'x10', b: 3 }, { a: 'x9', b: 20n }, { a: 'Y', b: null }];
    it('sort numbers as numbers', () => {
        expect(sorted(rows, { name: 'a', isDown: false }).map((each) => each['a'])).toEqual(['x9', 'x10', 'Y']);
        expect(sorted(rows, { name: 'b', isDown: true })[0]?.['b']).toBe(20n);
    });
    it('filter by any column', () => expect(matching(rows, 'y')).toHaveLength(1));
    it('read deep links, also broken ones', () => {
        expect(route('#/entities/router.link?filter=a%20b')).toMatchObject({ page: 'entities', parts: ['router.link'] });
        expect(route('#/entities/%E0%A4%A').parts).toEqual(['%E0%A4%A']);
        expect(route('').page).toBe('overview');
    });
});
