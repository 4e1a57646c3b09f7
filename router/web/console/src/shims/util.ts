// What rhea uses of Node's `util`.
type Constructor = { prototype: object; super_?: unknown };

export function inherits(child: Constructor, parent: Constructor): void {
    child.super_ = parent;
    Object.setPrototypeOf(child.prototype, parent.prototype);
}

export function format(...parts: unknown[]): string {
    return parts.map(String).join(' ');
}

export default { inherits, format };
