// A form made from the schema, for CREATE and UPDATE. What is sent is shown first, and confirmed.
import { useState } from 'preact/hooks';
import { parsed, type Attribute, type EntityType } from '../schema';
import type { Session } from '../session';
import { text, type Row, type Value } from '../values';

interface Props {
    session: Session;
    type: EntityType;
    entity?: Row; // the one to change; without it one is made
    done(): void;
}

/** The attributes that a form has. */
export function asked(type: EntityType, isChange: boolean): Attribute[] {
    return type.attributes.filter((each) => each.name !== 'type' && each.name !== 'identity' && (isChange ? each.mayUpdate : each.mayCreate));
}

/** The body of the request: what is given, and of a change only what differs. Errors: Error. */
export function body(attributes: readonly Attribute[], given: Readonly<Record<string, string>>, entity?: Row): Record<string, Value> {
    const made: Record<string, Value> = {};
    for (const attribute of attributes) {
        const now = given[attribute.name];
        if (now === undefined || (entity && now === text(entity[attribute.name]))) continue;
        const value = parsed(attribute, now);
        if (value !== undefined) made[attribute.name] = value;
        else if (entity) made[attribute.name] = attribute.type === 'string' ? '' : null;
        else if (attribute.isRequired) throw new Error(`${attribute.name} is wanted.`);
    }
    if (!entity) for (const { name, isRequired } of attributes) if (isRequired && !(name in made)) throw new Error(`${name} is wanted.`);
    return made;
}

export function Form({ session, type, entity, done }: Props) {
    const attributes = asked(type, entity !== undefined);
    const [given, setGiven] = useState<Record<string, string>>({});
    const [wanted, setWanted] = useState<Record<string, Value> | null>(null); // waits for its confirmation
    const [failure, setFailure] = useState('');
    const verb = entity ? 'Change' : 'Create';
    const check = (event: Event): void => {
        event.preventDefault();
        setFailure('');
        try {
            const made = body(attributes, given, entity);
            if (entity && Object.keys(made).length === 0) throw new Error('Nothing differs.');
            setWanted(made);
        } catch (error) {
            setFailure(error instanceof Error ? error.message : String(error));
        }
    };
    const send = async (): Promise<void> => {
        try {
            const target = entity ? { name: null, identity: text(entity['identity']) } : { name: wanted?.['name'] ?? null };
            await session.request(entity ? 'UPDATE' : 'CREATE', { ...target, type: type.name }, wanted);
            done();
        } catch (error) {
            setWanted(null);
            setFailure(error instanceof Error ? error.message : String(error));
        }
    };
    const hidden = new Set(type.attributes.filter((each) => each.isSecret).map((each) => each.name));
    if (attributes.length === 0) return <p>Nothing of it can be changed.</p>;
    if (wanted) {
        return (
            <div class="confirm" role="alertdialog" aria-label="Confirm">
                <p>{verb} {type.name} with these values? The router does so at once.</p>
                <dl class="facts">{Object.entries(wanted).map(([name, value]) => <><dt>{name}</dt><dd>{hidden.has(name) ? '*******' : text(value)}</dd></>)}</dl>
                <button type="button" class="danger" onClick={() => void send()}>{verb}</button> <button type="button" onClick={() => setWanted(null)}>Back</button>
            </div>
        );
    }
    return (
        <form onSubmit={check} class="entity" noValidate>
            <div role="alert">{failure && <p class="failure">{failure}</p>}</div>
            {attributes.map((attribute) => (
                <Field key={attribute.name} attribute={attribute} value={given[attribute.name] ?? (entity ? text(entity[attribute.name]) : '')} change={(value) => setGiven({ ...given, [attribute.name]: value })} />
            ))}
            <button class="main" type="submit">{verb} …</button>
        </form>
    );
}

function Field({ attribute, value, change }: { attribute: Attribute; value: string; change(value: string): void }) {
    const id = `field-${attribute.name}`;
    const choices = attribute.type === 'boolean' ? ['yes', 'no'] : attribute.choices;
    const common = { id, 'aria-describedby': `${id}-about`, value };
    const fallback = text(attribute.fallback);
    return (
        <div class="field">
            <label for={id}>{attribute.name}{attribute.isRequired && <b> (required)</b>}</label>
            {choices.length > 0 ? (
                <select {...common} onChange={(event) => change(event.currentTarget.value)}>
                    <option value="">{fallback ? `default: ${fallback}` : ''}</option>
                    {choices.map((each) => <option key={each}>{each}</option>)}
                </select>
            ) : attribute.type === 'map' || attribute.type === 'list' ? (
                <textarea {...common} rows={4} spellcheck={false} placeholder="JSON" onInput={(event) => change(event.currentTarget.value)} />
            ) : (
                <input {...common} type={attribute.isSecret ? 'password' : 'text'} autocomplete="off" spellcheck={false} placeholder={fallback} inputMode={attribute.type === 'integer' ? 'numeric' : undefined} onInput={(event) => change(event.currentTarget.value)} />
            )}
            <small id={`${id}-about`}>{attribute.description}</small>
        </div>
    );
}
