// The schema as GET-SCHEMA gives it.
import { extensions, more } from 'virtual:schema';
import type { Value } from './values';

export interface Attribute {
    name: string;
    type: string;
    choices: string[]; // not empty: one of these
    description: string;
    fallback: Value; // the default
    isRequired: boolean;
    isSecret: boolean;
    mayCreate: boolean;
    mayUpdate: boolean;
    isStatistic: boolean;
}

export interface EntityType {
    name: string; // without the prefix
    description: string;
    operations: string[];
    attributes: Attribute[];
    isSingleton: boolean;
}

export const PREFIX = 'org.apache.qpid.dispatch.';

type Raw = { [key: string]: Value };

export function readSchema(body: Value): EntityType[] {
    // The router knows its extensions by name, also while GET-SCHEMA does not show them.
    const types = { ...extensions, ...(((body as Raw | null)?.['entityTypes'] ?? {}) as Raw) };
    return Object.entries(types)
        .map(([name, each]) => entityType(name, each as Raw))
        .sort((a, b) => a.name.localeCompare(b.name));
}

function entityType(name: string, raw: Raw): EntityType {
    const attributes = Object.entries((raw['attributes'] ?? {}) as Raw).map(([each, given]) => attribute(name, each, given as Raw));
    return {
        name: name.startsWith(PREFIX) ? name.slice(PREFIX.length) : name,
        description: String(raw['description'] ?? ''),
        operations: [...((raw['operations'] ?? []) as Value[]).map(String), ...(more[name]?.operations ?? [])],
        isSingleton: raw['singleton'] === true,
        attributes: attributes.sort((a, b) => rank(a) - rank(b)),
    };
}

/** name, identity and type come first; statistics last. */
function rank(attribute: Attribute): number {
    const at = ['name', 'identity', 'type'].indexOf(attribute.name);
    return at >= 0 ? at - 3 : attribute.isStatistic ? 1 : 0;
}

function attribute(owner: string, name: string, raw: Raw): Attribute {
    const type = raw['type'];
    const known = more[owner];
    const isStatistic = raw['graph'] === true;
    return {
        name,
        type: Array.isArray(type) ? 'choice' : String(type ?? 'string'),
        choices: Array.isArray(type) ? type.map(String) : [],
        description: String(raw['description'] ?? ''),
        fallback: raw['default'] ?? null,
        isRequired: raw['required'] === true,
        isSecret: known ? known.secret.includes(name) : /password/i.test(name),
        mayCreate: known ? known.create.includes(name) : !isStatistic,
        mayUpdate: known ? known.update.includes(name) : !isStatistic,
        isStatistic,
    };
}

/** The types that have entities of their own. */
export function listed(types: readonly EntityType[]): EntityType[] {
    const bases = new Set(['entity', 'configurationEntity', 'operationalEntity', 'org.amqp.management', 'vhostUserGroupSettings', 'dummy']);
    return types.filter((each) => !bases.has(each.name));
}

/** What a form's text means for an attribute; undefined: it is left out. Errors: Error, in words for the form. */
export function parsed(attribute: Attribute, given: string): Value | undefined {
    const trimmed = given.trim();
    if (trimmed === '') return undefined;
    switch (attribute.type) {
        case 'integer': {
            if (!/^-?\d{1,19}$/.test(trimmed)) throw new Error(`${attribute.name}: a whole number is wanted.`);
            const number = Number(trimmed);
            if (!Number.isSafeInteger(number)) throw new Error(`${attribute.name}: the number is too large.`);
            return number;
        }
        case 'boolean':
            return trimmed === 'yes' || trimmed === 'true';
        case 'map':
        case 'list':
            try {
                return JSON.parse(trimmed) as Value;
            } catch {
                throw new Error(`${attribute.name}: JSON is wanted.`);
            }
        default:
            return given;
    }
}
