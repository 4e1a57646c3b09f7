import { useState } from 'preact/hooks';
import type { PageProps } from '../app';
import { link } from '../hooks';
import { matching, Table } from '../parts/table';
import { text, type Row } from '../values';

export function SchemaPage({ types, parts }: PageProps) {
    const [filter, setFilter] = useState('');
    const chosen = types.find((each) => each.name === parts[0]) ?? types[0];
    if (!chosen) return <p>The router gave no schema.</p>;
    const rows: Row[] = chosen.attributes.map((each) => ({
        name: each.name,
        type: each.choices.length ? each.choices.join(' | ') : each.type,
        default: text(each.fallback),
        set: [each.isRequired && 'required', each.mayCreate && chosen.operations.includes('CREATE') && 'create', each.mayUpdate && chosen.operations.includes('UPDATE') && 'update', each.isStatistic && 'statistic'].filter(Boolean).join(', '),
        description: each.description,
    }));
    return (
        <>
            <div class="tools">
                <label>Type
                    <select value={chosen.name} onChange={(event) => (location.hash = link('schema', [event.currentTarget.value]))}>
                        {types.map((each) => <option key={each.name}>{each.name}</option>)}
                    </select>
                </label>
                <label>Filter<input type="search" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} /></label>
            </div>
            <h2>{chosen.name}</h2>
            <p>{chosen.description}</p>
            <p class="hint">Operations: {chosen.operations.join(', ') || 'none'}. <a href={link('entities', [chosen.name])}>Its entities</a></p>
            <Table caption={`Attributes of ${chosen.name}`} rows={matching(rows, filter)} columns={[{ name: 'name' }, { name: 'type' }, { name: 'default' }, { name: 'set' }, { name: 'description', shown: (row) => <span class="long">{text(row['description'])}</span> }]} />
        </>
    );
}
