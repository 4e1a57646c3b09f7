import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

export function Dialog({ title, close, children }: { title: string; close(): void; children: ComponentChildren }) {
    const place = useRef<HTMLDialogElement>(null);
    useEffect(() => {
        place.current?.showModal();
    }, []);
    return (
        <dialog ref={place} aria-label={title} onClose={close}>
            <div class="head">
                <h2>{title}</h2>
                <button type="button" onClick={() => place.current?.close()}>Close</button>
            </div>
            {children}
        </dialog>
    );
}
